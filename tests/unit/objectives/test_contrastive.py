"""InfoNCE against its equation, computed text by text."""

import numpy as np
import pytest
import torch

from bertwright.batches.batch import Batch
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.models.model import DeviceBatch, Model
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.objectives.objective import MaskingContext, combined_visibility
from bertwright.recipes import Recipe
from bertwright.testing.toy import (
    TOY_VOCAB_SIZE,
    randomise,
    toy_arrays,
    toy_recipe,
    toy_sequences,
    toy_vocabulary,
)

TEMPERATURE = 0.2
NO_DROPOUT = ("encoder.dropout=0", "encoder.mixer.dropout=0")
NEIGHBOURS = "assembly={kind: sentence-groups, sentences: 2, copies: 1, length: 24}"


def contrastive_recipe(*overrides: str) -> Recipe:
    changes = (f"objectives.contrastive.temperature={TEMPERATURE}", "phases=[{}]", *overrides)
    return toy_recipe("simcse", *changes)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize("vector_projection", ["null", "{width: 7}"])
@pytest.mark.parametrize("assembly", [NEIGHBOURS, "assembly={kind: document-crops, length: 24}"])
@pytest.mark.parametrize("among", ["second", "all"])
@torch.no_grad()
def test_the_loss_is_info_nce_of_texts_encoded_alone(
    pooling: str, projection: bool, vector_projection: str, assembly: str, among: str
) -> None:
    recipe = contrastive_recipe(
        *NO_DROPOUT,
        assembly,
        f"vectors.pooling={pooling}",
        f"vectors.projection={vector_projection}",
        f"objectives.contrastive.projection={projection}",
        f"objectives.contrastive.among={among}",
    )
    model = Model.build(recipe, TOY_VOCAB_SIZE)
    randomise(model)
    batch = DeviceBatch(toy_arrays(recipe, 0))
    (loss,) = model.losses(batch, recipe.objectives).values()
    document_ids = batch.token_info.document_ids
    assert document_ids is not None
    vectors: list[np.ndarray] = []
    for text in range(2):
        rows = [
            ids[documents == text]
            for ids, documents in zip(batch.token_ids, document_ids, strict=True)
        ]
        states = [model(ids[None])[0] for ids in rows]
        pooled = torch.stack([s.mean(0) if pooling == "mean" else s[0] for s in states])
        if model.vector_projection is not None:
            pooled = model.vector_projection(pooled)
        if projection:
            pooled = torch.tanh(model.heads["contrastive"](pooled))
        vectors.append(unit(pooled.numpy()))
    if among == "second":
        scores = np.exp(vectors[0] @ vectors[1].T / TEMPERATURE)
        positive = np.diagonal(scores)
    else:
        texts, partners = np.concatenate(vectors), np.concatenate(vectors[::-1])
        scores = np.exp(texts @ texts.T / TEMPERATURE)
        np.fill_diagonal(scores, 0.0)
        positive = np.exp((texts * partners).sum(1) / TEMPERATURE)
    expected = -np.log(positive / scores.sum(1))
    assert float(loss.sum) / loss.count == pytest.approx(expected.mean(), rel=1e-4)


@pytest.mark.parametrize("among", ["second", "all"])
@torch.no_grad()
def test_a_text_without_a_partner_has_no_target_and_is_no_negative(among: str) -> None:
    recipe = contrastive_recipe(*NO_DROPOUT, NEIGHBOURS, f"objectives.contrastive.among={among}")
    objective = recipe.objectives["contrastive"]
    assert objective.capabilities.compares_sequences
    model = Model.build(recipe, TOY_VOCAB_SIZE)
    randomise(model)
    sequences, missing = toy_sequences(recipe), 3
    losses: list[float] = []
    for rows in (np.arange(8), np.delete(np.arange(8), missing)):
        arrays = {name: values[rows] for name, values in sequences.token_info.arrays().items()}
        is_missing = (rows[:, None] == missing) & (arrays["document_ids"] == 1)
        arrays["document_ids"] = np.where(is_missing, np.int32(-1), arrays["document_ids"])
        batch = SequenceBatch(
            sequences.token_ids[rows], TokenInfoArrays(**arrays), sequences.is_special[rows]
        )
        context = MaskingContext(CounterRng(0, np.zeros_like(rows), rows), toy_vocabulary())
        batch, targets = objective.make_targets(batch, context)
        assert targets.weights.tolist() == (rows != missing).tolist()
        targets_by_name = {"contrastive": targets}
        device_batch = DeviceBatch(Batch(batch.token_ids, batch.token_info, targets_by_name, 1))
        (loss,) = model.losses(device_batch, recipe.objectives).values()
        assert loss.count == 7
        losses.append(float(loss.sum))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_copies_differ_by_dropout_alone() -> None:
    recipe = contrastive_recipe()
    arrays = toy_arrays(recipe, 0)
    documents = arrays.token_info.document_ids
    assert documents is not None
    for ids, numbers in zip(arrays.token_ids, documents, strict=True):
        assert ids[numbers == 0].tolist() == ids[numbers == 1].tolist()
    model, batch = Model.build(recipe, TOY_VOCAB_SIZE), DeviceBatch(arrays)
    visibility = combined_visibility([*recipe.objectives.values()])

    def views(rng: DropoutRng | None) -> tuple[torch.Tensor, torch.Tensor]:
        states = model.encoder(batch.token_ids, batch.token_info, visibility, rng)
        return states[:, 0], states[torch.arange(len(states)), (documents == 1).argmax(1)]

    first, second = views(None)
    torch.testing.assert_close(first, second)
    first, second = views(DropoutRng.for_step(0, 0, 0, "cpu"))
    assert (first - second).abs().amin(1).max() > 1e-3
    with pytest.raises(UserError, match="differ by dropout alone"):
        contrastive_recipe(*NO_DROPOUT)


def test_masked_tokens_share_the_step() -> None:
    recipe = contrastive_recipe(NEIGHBOURS, "objectives.masked={}")
    model = Model.build(recipe, TOY_VOCAB_SIZE)
    losses = model.losses(DeviceBatch(toy_arrays(recipe, 0)), recipe.objectives)
    assert losses.keys() == {"contrastive", "masked"}
    assert all(bool(loss.sum.isfinite()) for loss in losses.values())


def test_other_formats_are_refused() -> None:
    with pytest.raises(UserError, match="needs two isolated texts in a sequence"):
        contrastive_recipe("assembly={kind: sentence-groups, sentences: 3, length: 24}")
