"""Next-item ranking metrics."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.training.evaluation.held_out import (
    evaluate,
    evaluate_next_items,
    make_held_out_evaluation,
)
from bertwright.training.evaluation.next_item import (
    _rank,
    _rank_metrics,
    _sample_negatives,
    next_item_metrics,
)
from bertwright.training.pretraining.pretrain import pretrain

SMALL = (
    "encoder.width=32",
    "encoder.mixer.head_width=16",
    "assembly.length=16",
    "batch_tokens=256",
    "precision=float32",
    "compile=false",
    "steps=8",
)
CAUSAL = (
    "text.tokenizer.kind=items",
    "assembly={kind: item-history, length: 16, windows: 1, last: 0}",
    "phases=[{}]",
)


def test_an_unknown_item_is_reported(items: Dataset) -> None:
    model = Model.build(Recipe.load("bert4rec", *SMALL), items.tokenizer.vocab_size)
    text_model = TextModel(model, items.tokenizer, "float32")
    known = items.tokenizer.id_to_token(10)
    assert len(text_model.fill_mask(f"{known} [MASK]")[0]) == 5
    assert text_model.embed(f"{known} {known}").shape == (1, 32)
    with pytest.raises(UserError, match=r"knows no item 'film': .* with _ for each space"):
        text_model.fill_mask("film 3 [MASK]")
    with pytest.raises(UserError, match="knows no item"):
        text_model.embed([known, "good morning"])


def test_metrics_follow_their_definitions() -> None:
    metrics = _rank_metrics(np.array([1.0, 3.0, 7.5, 20.0]))
    assert metrics["hr_1"] == 0.25
    assert metrics["hr_5"] == 0.5
    assert metrics["hr_10"] == 0.75
    assert metrics["ndcg_5"] == pytest.approx((1 + 1 / math.log2(4)) / 4, abs=1e-9)
    assert metrics["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 7.5 + 1 / 20) / 4, abs=1e-9)


def test_ties_have_the_mean_rank() -> None:
    scores = torch.tensor([5.0, 2.0, 2.0, 2.0, 1.0])
    assert _rank(scores, 1, torch.tensor([0, 2, 3, 4])) == 3.0


def test_negatives_are_sampled_by_popularity_and_reproducible() -> None:
    popularity = torch.cat((torch.full((150,), 1.0), torch.full((150,), 50.0)))
    candidates = torch.arange(300)
    samples = [_sample_negatives(candidates, popularity, user) for user in range(20)]
    assert all(len(set(negatives.tolist())) == 100 for negatives in samples)
    assert torch.equal(samples[3], _sample_negatives(candidates, popularity, 3))
    assert not torch.equal(samples[3], samples[4])
    assert float(torch.cat(samples).ge(150).float().mean()) > 0.9


def test_a_model_of_item_frequencies_ranks_like_popularity(items: Dataset) -> None:
    recipe = Recipe.load("bert4rec-tiny", *SMALL)
    model = Model.build(recipe, items.tokenizer.vocab_size).eval()
    assert model.output is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.output.bias.copy_(torch.from_numpy(items.token_counts).float())  # type: ignore[union-attr]
    metrics = next_item_metrics(model, recipe.objectives, items)
    for name, value in metrics.items():
        if name.startswith("popularity_"):
            assert metrics[name.removeprefix("popularity_")] == value
    assert 0 < metrics["popularity_hr_10"] <= metrics["popularity_sampled_hr_10"]


@pytest.mark.parametrize("system", ["bert4rec", "gpt"])
def test_the_model_does_not_read_the_item_to_predict(items: Dataset, system: str) -> None:
    recipe = Recipe.load(f"{system}-tiny", *SMALL, *(CAUSAL if system == "gpt" else ()))
    model = Model.build(recipe, items.tokenizer.vocab_size).eval()
    inputs: list[torch.Tensor] = []
    forward = model.encoder.forward

    def record(token_ids: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        inputs.append(token_ids)
        return forward(token_ids, *args, **kwargs)

    model.encoder.forward = record  # type: ignore[method-assign]
    next_item_metrics(model, recipe.objectives, items, "test")
    split, token_ids = items.split("test"), torch.cat([batch.flatten() for batch in inputs])
    mask, pad = items.tokenizer.special_tokens.mask, items.tokenizer.special_tokens.pad
    lengths = np.minimum(np.diff(split.document_starts) - (system == "gpt"), 16)
    assert int((token_ids != pad).sum()) == lengths.sum()
    assert int((token_ids == mask).sum()) == (len(lengths) if system == "bert4rec" else 0)


def test_training_and_evaluation_report_ranks(items: Dataset, tmp_path: Path) -> None:
    recipe = Recipe.load("bert4rec-tiny", *SMALL, "evaluate_every=4")
    result = pretrain(recipe, items, tmp_path / "out", quiet=True)
    assert {"masked_loss", "hr_10", "ndcg_10", "mrr", "popularity_hr_10"} <= result.metrics.keys()
    assert "bits_per_byte" not in result.metrics
    model = Model.build(recipe, items.tokenizer.vocab_size).eval()
    assert {"hr_10", "test_hr_10", "test_popularity_sampled_mrr"} <= evaluate(model, items).keys()


def test_the_held_out_loss_is_on_the_last_items(items: Dataset) -> None:
    recipe = Recipe.load("bert4rec-tiny", *SMALL)
    evaluation = make_held_out_evaluation(recipe, 0, items, 10**6)
    targets = [batch.targets["masked"] for batch in evaluation.batches]
    weights = np.concatenate([t.weights for t in targets])
    labels = np.concatenate([t.labels for t in targets])[weights > 0]
    split = items.split("heldout")
    last = split.token_ids(0, split.num_tokens)[split.document_starts[1:] - 1]
    assert sorted(labels.tolist()) == sorted(last.tolist())
    inputs = np.concatenate(
        [
            b.token_ids.ravel()[t.positions[t.weights > 0]]
            for b, t in zip(evaluation.batches, targets, strict=True)
        ]
    )
    assert (inputs == items.tokenizer.special_tokens.mask).all()


def test_text_has_no_next_item(items: Dataset) -> None:
    recipe = Recipe.load("bert-tiny")
    assert evaluate_next_items(Model.build(recipe, 50), recipe, 0, items) == {}
