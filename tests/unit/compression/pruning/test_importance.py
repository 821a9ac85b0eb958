"""Structured pruning of a fine-tuned model: the least important heads and units."""

import numpy as np
import pytest
import torch

from bertwright.compression.pruning.importance import (
    StructuredPruning,
    _gate_gradients,
    _unit_gates,
    importances,
    prune_fine_tuned,
)
from bertwright.compression.pruning.structured import Subnetwork
from bertwright.compression.task_loss import example_batches
from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes, numbers, tagged

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number", ("negative-mean-squared-error", "spearman"))
TAGS = tagging_task("colours")
QUICK = {"learning_rate": 3e-3, "dropout": 0.0, "compile": False, "batch_size": 8, "epochs": 2}
KINDS = [(CLASSES, classes()), (NUMBERS, numbers()), (TAGS, tagged())]


def fine_tuned(pretrained, task=CLASSES, examples=None) -> FineTunedModel:
    examples = examples or classes()
    model = finetune(pretrained(), task, train=examples, dev=examples, **QUICK).model
    length = model.example_encoder.max_length
    return FineTunedModel(model.task_model, model.tokenizer, model.task, length, "float32")


def outputs(model: FineTunedModel, examples) -> np.ndarray:
    sequences = model.output_decoder.encode(model.example_encoder, examples)
    return np.concatenate(model.head_outputs(sequences))


@pytest.mark.parametrize(("task", "examples"), KINDS)
def test_outputs_are_those_with_the_others_gated_to_0(pretrained, task, examples) -> None:
    model = fine_tuned(pretrained, task, examples)
    heads, units = importances(model, examples)
    num_heads, num_units = heads[0].size, units[0].size
    kept = Subnetwork(((1,), tuple(range(num_heads))), (tuple(range(num_units)), (0, 3)))
    gates = {n: g.detach()[:1].clone() for n, g in _unit_gates(model, 1).items()}
    gates["blocks.0.attention.context"][:, 0] = 0
    gates["blocks.1.feed_forward.activation"][..., [1, 2, *range(4, num_units)]] = 0
    with model.task_model.encoder.gate(gates):
        expected = outputs(model, examples)
    pruned = prune_fine_tuned(model, kept)
    np.testing.assert_allclose(outputs(pruned, examples), expected, atol=1e-5, rtol=1e-5)
    assert pruned.task == model.task


@pytest.mark.parametrize(("task", "examples"), KINDS)
def test_importance_is_the_gradient_of_the_loss(pretrained, task, examples) -> None:
    model = fine_tuned(pretrained, task, examples)
    single = importances(model, examples[:1])
    for part, blocks in enumerate(importances(model, examples[:3])):
        for block, values in enumerate(blocks):
            assert values.shape == single[part][block].shape
            assert np.linalg.norm(values) == pytest.approx(1)
    step = 1e-2

    def difference(head: int) -> float:
        losses = []
        for sign in (1, -1):
            gates = {n: g.detach().clone() for n, g in _unit_gates(model, 1).items()}
            gates["blocks.0.attention.context"][:, head] += sign * step
            with model.task_model.encoder.gate(gates):
                losses.append(loss_of(model, examples[0]))
        return abs(losses[0] - losses[1])

    heads = single[0][0]
    assert heads[1] / heads[0] == pytest.approx(difference(1) / difference(0), rel=0.05)


def test_importance_adds_up_over_examples(pretrained) -> None:
    """Gradients of one example may be negative, and do not cancel those of another."""
    model, examples = fine_tuned(pretrained, TAGS, tagged()), tagged()[:3]
    (batch,) = example_batches(model, examples, 3)
    singles = [_gate_gradients(single) for single in example_batches(model, examples, 1)]
    for name, gradients in _gate_gradients(batch).items():
        by_example = torch.cat([single[name] for single in singles])
        torch.testing.assert_close(gradients, by_example, rtol=1e-3, atol=1e-6)
        if name.endswith("activation"):
            assert (gradients.sign().sum(0).abs() < len(examples)).any()
    for part, tap in enumerate(("attention.context", "feed_forward.activation")):
        for block, values in enumerate(importances(model, examples)[part]):
            parts = [s[f"blocks.{block}.{tap}"].flatten().numpy() for s in singles]
            total = sum(abs(gradient) for gradient in parts)
            np.testing.assert_allclose(values, total / np.linalg.norm(total), rtol=1e-3, atol=1e-5)


def loss_of(model: FineTunedModel, example) -> float:
    sequences = model.output_decoder.encode(model.example_encoder, [example])
    values = torch.from_numpy(np.concatenate(model.head_outputs(sequences)))
    targets = torch.tensor(model.output_decoder.targets(sequences, example))
    return float(model.output_decoder.loss(values, [len(values)], targets)[0])


def test_pruning_can_be_repeated(pretrained) -> None:
    model, examples = fine_tuned(pretrained), classes()
    pruned = StructuredPruning(heads=0.5, units=0.5).prune(model, examples)
    sizes = pruned.task_model.recipe.encoder.pruned_sizes
    assert sizes is not None
    heads, units = importances(model, examples)
    assert sum(sizes.heads or ()) == sum(values.size for values in heads) // 2
    assert sum(sizes.units or ()) == sum(values.size for values in units) // 2
    again = StructuredPruning(heads=0.25, units=0.5).prune(pruned, examples)
    assert outputs(again, examples).shape == outputs(model, examples).shape


@pytest.mark.parametrize("sharing", ["all", "attention", "feed-forward"])
def test_shared_parts_are_pruned_by_their_sum(pretrained, sharing: str) -> None:
    examples, source = classes(), pretrained("bert", f"encoder.depth.sharing={sharing}")
    model = finetune(source, CLASSES, train=examples, dev=examples, **QUICK).model
    pruned = StructuredPruning(heads=0.25, units=0.5).prune(model, examples)
    config = model.task_model.recipe.encoder
    sizes = pruned.task_model.recipe.encoder.pruned_sizes
    assert sizes is not None
    _, units = importances(model, examples)
    if config.depth.owner_block(1, "f") == 0:
        total = units[0] + units[1]
        kept = np.sort(np.argsort(total, kind="stable")[round(0.5 * total.size) :])
        assert sizes.units == (len(kept),) * 2
        before, after = (
            net.state_dict()["encoder.blocks.0.sublayers.feed_forward.down.weight"]
            for net in (model.task_model, pruned.task_model)
        )
        assert torch.equal(after, before[:, torch.from_numpy(kept)])
    else:
        assert sum(sizes.units or ()) == sum(values.size for values in units) // 2
    assert outputs(pruned, examples).shape == outputs(model, examples).shape


def test_blocks_without_a_sublayer_keep_the_others(pretrained) -> None:
    examples, settings = classes(), {**QUICK, "precision": "float32"}
    source = pretrained("sandwich", "encoder.depth={kind: sandwich, layers: 3, outside: 0.34}")
    model = finetune(source, CLASSES, train=examples, dev=examples, **settings).model
    heads, units = importances(model, examples)
    orders = model.task_model.recipe.encoder.depth.sublayer_orders()
    assert [bool(values.size) for values in heads] == ["s" in order for order in orders]
    assert [bool(values.size) for values in units] == ["f" in order for order in orders]
    pruned = StructuredPruning(heads=0.5, units=0.5).prune(model, examples)
    removed = {
        name: tensor.numel() / dict(pruned.task_model.named_parameters())[name].numel()
        for name, tensor in model.task_model.named_parameters()
        if name.endswith(("attention.output.weight", "feed_forward.down.weight"))
    }
    assert len(removed) == sum(map(len, orders))
    assert removed == pytest.approx(dict.fromkeys(removed, 2.0), rel=0.5)
    assert np.isfinite(outputs(pruned, examples)).all()


def test_blocks_with_two_feed_forwards_are_refused(pretrained) -> None:
    examples = classes()
    source = pretrained("bert", "encoder.depth.order=sff")
    model = finetune(source, CLASSES, train=examples, dev=examples, **QUICK).model
    with pytest.raises(UserError, match=r"pruned_sizes\.units needs one feed_forward per block"):
        StructuredPruning(units=0.3).prune(model, examples)
