"""Heads and units are taken out of a fine-tuned model: those that matter least, and they alone."""

import numpy as np
import pytest
import torch

from bertwright.compression.structure import Removing, _open_gates, cut_fine_tuned, importances
from bertwright.compression.surgery import Kept
from bertwright.errors import UserError
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes, numbers, tagged

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number", ("negative-mean-squared-error", "spearman"))
TAGS = tagging_task("colours")
QUICK = {"rate": 3e-3, "dropout": 0.0, "compile": False, "batch": 8, "epochs": 2}
KINDS = [(CLASSES, classes()), (NUMBERS, numbers()), (TAGS, tagged())]


def tuned(pretrained, task=CLASSES, examples=None) -> FineTuned:
    examples = examples or classes()
    found = finetune(pretrained(), task, train=examples, dev=examples, **QUICK).model
    return FineTuned(found.net, found.tokenizer, found.task, found.maker.length, "float32")


def answers(model: FineTuned, examples) -> np.ndarray:
    return np.concatenate(model.outputs(model.answering.rows(model.maker, examples)))


@pytest.mark.parametrize(("task", "examples"), KINDS)
def test_what_is_left_answers_as_with_the_others_gated_away(pretrained, task, examples) -> None:
    model = tuned(pretrained, task, examples)
    heads, units = importances(model, examples)
    num_heads, num_units = heads[0].size, units[0].size
    kept = Kept(((1,), tuple(range(num_heads))), (tuple(range(num_units)), (0, 3)))
    gates = {n: g.detach()[:1].clone() for n, g in _open_gates(model, 1).items()}
    gates["blocks.0.attention.context"][:, 0] = 0
    gates["blocks.1.feed_forward.activation"][..., [1, 2, *range(4, num_units)]] = 0
    with model.net.encoder.gate(gates):
        expected = answers(model, examples)
    small = cut_fine_tuned(model, kept)
    np.testing.assert_allclose(answers(small, examples), expected, atol=1e-5, rtol=1e-5)
    assert small.task == model.task


@pytest.mark.parametrize(("task", "examples"), KINDS)
def test_a_slope_is_that_of_the_loss_of_one_example(pretrained, task, examples) -> None:
    model = tuned(pretrained, task, examples)
    alone = [importances(model, [each]) for each in examples[:3]]
    together = importances(model, examples[:3])
    for part in (0, 1):
        for block, found in enumerate(together[part]):
            # Of one example the length is not known any more: directions of their mean are alike.
            assert found.shape == alone[0][part][block].shape
            assert np.linalg.norm(found) == pytest.approx(1)
    gate, step = _open_gates(model, 1), 1e-2
    losses = []
    for sign in (1, -1):
        changed = {n: g.detach().clone() for n, g in gate.items()}
        changed["blocks.0.attention.context"][:, 1] += sign * step
        with model.net.encoder.gate(changed):
            losses.append(loss_of(model, examples[0]))
    slope = abs(losses[0] - losses[1]) / (2 * step)
    found = alone[0][0][0]
    other = []
    for sign in (1, -1):
        changed = {n: g.detach().clone() for n, g in gate.items()}
        changed["blocks.0.attention.context"][:, 0] += sign * step
        with model.net.encoder.gate(changed):
            other.append(loss_of(model, examples[0]))
    ratio = slope / (abs(other[0] - other[1]) / (2 * step))
    assert found[1] / found[0] == pytest.approx(ratio, rel=0.05)


def loss_of(model: FineTuned, example) -> float:
    rows = model.answering.rows(model.maker, [example])
    outputs = torch.from_numpy(np.concatenate(model.outputs(rows)))
    targets = torch.tensor(model.answering.targets(rows, example))
    return float(model.answering.loss(outputs, [len(outputs)], targets)[0])


def test_what_is_removed_is_what_matters_least(pretrained) -> None:
    model, examples = tuned(pretrained), classes()
    small = Removing(heads=0.5, units=0.5).left_of(model, examples)
    cut = small.net.recipe.encoder.cut
    assert cut is not None
    heads, units = importances(model, examples)
    assert sum(cut.heads or ()) == sum(own.size for own in heads) // 2
    assert sum(cut.units or ()) == sum(own.size for own in units) // 2
    again = Removing(heads=0.25, units=0.5).left_of(small, examples)
    assert answers(again, examples).shape == answers(model, examples).shape


@pytest.mark.parametrize("sharing", ["all", "attention", "feed-forward"])
def test_what_blocks_share_goes_by_what_it_matters_in_all_of_them(pretrained, sharing: str) -> None:
    examples, source = classes(), pretrained("bert", f"encoder.depth.sharing={sharing}")
    model = finetune(source, CLASSES, train=examples, dev=examples, **QUICK).model
    small = Removing(heads=0.25, units=0.5).left_of(model, examples)
    choice, cut = model.net.recipe.encoder, small.net.recipe.encoder.cut
    assert cut is not None
    _, units = importances(model, examples)
    if choice.depth.owner(1, "f") == 0:
        together = units[0] + units[1]
        stays = np.sort(np.argsort(together, kind="stable")[round(0.5 * together.size) :])
        assert cut.units == (len(stays),) * 2
        before, after = (
            net.state_dict()["encoder.blocks.0.sublayers.feed_forward.down.weight"]
            for net in (model.net, small.net)
        )
        assert torch.equal(after, before[:, torch.from_numpy(stays)])
    else:
        assert sum(cut.units or ()) == sum(own.size for own in units) // 2
    assert answers(small, examples).shape == answers(model, examples).shape


def test_what_cannot_lose_parts_says_so(pretrained) -> None:
    examples = classes()
    source = pretrained("bert", "encoder.depth.order=sff")
    model = finetune(source, CLASSES, train=examples, dev=examples, **QUICK).model
    with pytest.raises(UserError, match=r"cut\.units are those of one feed_forward in a block"):
        Removing(units=0.3).left_of(model, examples)
