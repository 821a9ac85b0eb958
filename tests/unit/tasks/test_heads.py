"""Heads: pooling, initialisation, and the defaults of model families."""

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models.text_batches import text_batches
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.default_head import default_head
from bertwright.tasks.heads.head import HeadConfig, TaskHeadContext, init_head
from bertwright.tasks.heads.kinds import (
    DenseHeadConfig,
    LinearHeadConfig,
    PoolerHeadConfig,
    TransformHeadConfig,
)
from bertwright.tasks.heads.layers import LayerMix
from bertwright.tasks.heads.pooling import last_max_mean_pool, mean_pool, pooling_positions
from bertwright.tasks.heads.task_visibility import with_siamese_visibility
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task_model import HeadSpec, TaskModel
from small_tasks import classes
from toy_recipes import every_encoder, toy

TASK = table_task("task", Columns())

STATES = torch.tensor([[[1.0], [3.0], [100.0]], [[2.0], [4.0], [6.0]]])
DOCUMENT = torch.tensor([[0, 0, -1], [0, 0, 0]])


def test_poolings() -> None:
    token_ids, positions = STATES[..., 0].long(), torch.tensor([1, 5])
    pooled = {
        name: pooling_positions(name, token_ids, DOCUMENT, positions)
        for name in ("first", "last", "positions", "mean")
    }
    assert pooled.pop("mean") is None
    flat = STATES.flatten()
    expected = {"first": [1.0, 2.0], "last": [3.0, 6.0], "positions": [3.0, 6.0]}
    assert {name: flat[indices].tolist() for name, indices in pooled.items()} == expected
    assert mean_pool(STATES, DOCUMENT).tolist() == [[2.0], [4.0]]
    assert mean_pool(STATES[1:], None).tolist() == [[4.0]]
    assert last_max_mean_pool(STATES, DOCUMENT).tolist() == [[3.0, 3.0, 2.0], [6.0, 6.0, 4.0]]


@pytest.mark.parametrize("num_poolings", [1, 2])
@pytest.mark.parametrize("mode", ["learned", "sum", "mean"])
def test_layers_are_mixed_by_softmax_normalised_weights(mode, num_poolings: int) -> None:
    """Peters et al. 2018, equation 1: gain times the layers' sum, weighted by a softmax."""
    layers = np.random.default_rng(0).normal(size=(4, num_poolings, 3, 5))
    mix, scores, gain = LayerMix(mode, 3, num_poolings), np.array([0.3, -1.2, 2.0]), 0.7
    weights = {"sum": np.ones(3), "mean": np.full(3, 1 / 3)}.get(mode)
    if weights is None:
        # Untrained, the mix is the mean.
        untrained = mix(torch.from_numpy(layers).float().flatten(1))
        np.testing.assert_allclose(
            untrained.detach(), layers.mean(2).reshape(4, -1), rtol=1e-5, atol=1e-6
        )
        mix.load_state_dict({"weights": torch.tensor(scores), "gain": torch.tensor([gain])})
        weights = gain * np.exp(scores) / np.exp(scores).sum()
    expected = np.einsum("bpld,l->bpd", layers, weights).reshape(4, -1)
    mixed = mix(torch.from_numpy(layers).float().flatten(1))
    np.testing.assert_allclose(mixed.detach(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("system", "output_type", "expected"),
    [
        ("bert", "class", PoolerHeadConfig()),
        ("bert", "tags", LinearHeadConfig(pooling="positions")),
        ("roberta", "number", DenseHeadConfig()),
        ("modern", "class", TransformHeadConfig(pooling="mean")),
        ("modern", "tags", TransformHeadConfig(pooling="positions")),
    ],
)
def test_default_heads(system: str, output_type: str, expected: HeadConfig) -> None:
    assert default_head(toy(system), OutputType.parse(output_type)) == expected


def test_head_starts_from_pretrained_layers(pretrained) -> None:
    bert, modern = pretrained("bert").model, pretrained("modern").model
    pooler = PoolerHeadConfig().build(TaskHeadContext(bert.recipe, 2))
    init_head(pooler, bert, seed=1)
    assert torch.equal(pooler.trunk.dense.weight, bert.heads["next-sentence"].pooler.weight.cpu())
    choice = TransformHeadConfig(pooling="mean")
    head = choice.build(TaskHeadContext(modern.recipe, 2))
    init_head(head, modern, seed=1)
    assert torch.equal(head.trunk.dense.weight, modern.output.transform.dense.weight.cpu())


def test_pooler_head_starts_from_the_pooler_of_a_stock_model(pretrained) -> None:
    model = pretrained("bert", "objectives.next-sentence=null", "pooler=true").model
    head = PoolerHeadConfig().build(TaskHeadContext(model.recipe, 2))
    init_head(head, model, seed=1)
    assert torch.equal(head.trunk.dense.weight, model.pooler.weight.cpu())


@pytest.mark.parametrize("choice", [DenseHeadConfig(), LinearHeadConfig(pooling="mean")])
def test_new_head_parameters_depend_on_the_seed(pretrained, choice: HeadConfig) -> None:
    model = pretrained("roberta").model
    first, same, other = (choice.build(TaskHeadContext(model.recipe, 3)) for _ in range(3))
    for head, seed in ((first, 1), (same, 1), (other, 2)):
        init_head(head, model, seed)
    assert torch.equal(first.classifier.weight, same.classifier.weight)
    assert not torch.equal(first.classifier.weight, other.classifier.weight)


def test_incompatible_head_is_refused_with_the_reason(pretrained) -> None:
    with pytest.raises(
        UserError, match=r"head\.pooling: output type class needs one of first, last"
    ):
        finetune(
            pretrained(), TASK, train=classes(), head={"kind": "plain", "pooling": "positions"}
        )
    with pytest.raises(UserError, match="transform needs a recipe whose output has a transform"):
        model = pretrained("bert", "output.transform=false")
        finetune(model, TASK, train=classes(), head="transform")
    with pytest.raises(UserError, match="has no kind 'pooller': did you mean 'pooler'"):
        finetune(pretrained(), TASK, train=classes(), head="pooller")


def some_pairs() -> list[Example]:
    texts = ["the ship comes home", "a lamp is lit", "nobody sees it", "they all went out"]
    return [Example(a, b, label="same" if a == b else "other") for a in texts for b in texts]


WITHOUT_DOCUMENT_MASKS = {"performer", "reformer"}
"""Systems whose attention does not support document masks."""


@every_encoder
def test_siamese_texts_are_encoded_independently(pretrained, system: str) -> None:
    model = pretrained(system)
    head_spec = HeadSpec(LinearHeadConfig(pooling="siamese"), 2)
    if system in WITHOUT_DOCUMENT_MASKS:
        with pytest.raises(UserError, match="siamese does not work with this encoder"):
            with_siamese_visibility(model.model.recipe)
        return
    recipe = with_siamese_visibility(model.model.recipe)
    task_model = TaskModel(recipe, model.model.vocab_size, head_spec)
    task_model.encoder.load_state_dict(model.model.encoder.state_dict())
    siamese = FineTunedModel(task_model, model.tokenizer, TASK, precision="float32")
    pair = Example("the ship comes home", "a lamp", label="yes")
    (sequence,) = siamese.example_encoder.encode([pair])
    (batch,) = text_batches(
        [sequence.token_ids],
        0,
        model.device,
        sequence.segment_ids and [sequence.segment_ids],
        document_ids=[sequence.document_ids],
    )
    states = siamese.hidden_states(task_model.head.layers, batch).float()
    first, second = model.embed([pair.text, pair.pair], "mean")
    expected = np.concatenate((first, second, np.abs(first - second), first * second))
    pooled = task_model.head.pool(states, batch.token_info.document_ids)[0].detach().cpu().numpy()
    np.testing.assert_allclose(pooled, expected, atol=2e-5)


def test_siamese_head_learns_pairs(pretrained) -> None:
    """Train on whether two texts are equal, a function of their difference."""
    same = some_pairs()
    head = {"kind": "dense", "pooling": "siamese"}
    settings = {"learning_rate": 3e-3, "dropout": 0.0, "epochs": 30, "compile": False, "head": head}
    result = finetune(pretrained("bert"), TASK, train=same, dev=same, **settings)
    assert result.best.score == 1


@pytest.mark.parametrize("read", ["first", "last", "mean", "last-max-mean", "siamese"])
def test_predictions_on_frozen_features_match_the_model(pretrained, read: str) -> None:
    model = pretrained("bert")
    model.precision = "float32"
    result = finetune(
        model, TASK, train=some_pairs(), dev=some_pairs(), adaptation="frozen", epochs=2,
        learning_rate=1e-2, calibrate=False, precision="float32",
        head={"kind": "dense", "pooling": read},
    )  # fmt: skip
    scored = [p.probabilities for p in result.best.predictions[0]]
    result.model.precision = "float32"
    for one, other in zip(scored, result.model.predict(some_pairs()), strict=True):
        assert one == pytest.approx(other.probabilities, abs=1e-5)


@pytest.mark.parametrize(
    ("head", "examples", "message"),
    [
        ({"kind": "plain", "pooling": "siamese"}, classes(), "compares two texts, and this is one"),
        ({"kind": "plain", "pooling": "siamese", "mix": "sum"}, some_pairs(), "choose concat"),
    ],
)
def test_incompatible_siamese_head_is_refused(pretrained, head, examples, message: str) -> None:
    with pytest.raises(UserError, match=message):
        finetune(pretrained("bert"), TASK, train=examples, dev=examples, head=head)
