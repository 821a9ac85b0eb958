"""States in standard form: what heads learn on them holds for the states as they are."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from bertwright.model.text_model import TextModel
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.standard import Standard
from small_tasks import numbers, tagged

STATES = torch.randn(50, 6, generator=torch.Generator().manual_seed(1)) * 3 + 40

HEADS: list[Any] = [
    {"kind": "plain", "read": "places", "layers": "last-2", "mix": "sum"},
    {"kind": "dense", "read": "places"},
    {"kind": "bilstm", "width": 16, "depth": 1, "layers": "last-2", "mix": "learned"},
]


def frozen(model: TextModel, head: Any, **settings: Any) -> FineTuneResult:
    chosen = {
        "dropout": 0.0,
        "calibrate": False,
        "precision": "float32",
        "epochs": 3,
        "rate": 1e-2,
    } | settings
    task = tagging_task("colours")
    return finetune(
        model, task, train=tagged(), dev=tagged(), adaptation="frozen", head=head, **chosen
    )


def elsewhere(model: TextModel, by: float, times: float) -> TextModel:
    """A model whose last states lie elsewhere and are wider; nothing else reads them."""
    moved = deepcopy(model)
    last = list(moved.model.encoder.named_parameters())
    with torch.no_grad():
        for name, parameter in last[-2:]:
            assert "norm" in name
            parameter.mul_(times)
            if name.endswith("bias"):
                parameter.add_(by)
    return moved


def test_standard_states_have_mean_0_and_deviation_1() -> None:
    found = Standard.of(STATES.split(7))(STATES)
    assert torch.allclose(found.mean(0), torch.zeros(6), atol=1e-5)
    assert torch.allclose(found.std(0, correction=0), torch.ones(6), atol=1e-5)


def test_what_never_moves_stays_at_nothing() -> None:
    still = torch.cat([STATES, torch.full((50, 1), 7.0)], 1)
    assert Standard.of([still])(still)[:, -1].abs().max() < 1e-3


def test_maps_read_the_states_as_they_are_behind_folding() -> None:
    standard, linear = Standard.of([STATES]), torch.nn.Linear(6, 3)
    maps, before = [(linear.weight, linear.bias)], deepcopy(linear)
    wanted = linear(standard(STATES))
    standard.fold_into(maps)
    assert torch.allclose(linear(STATES), wanted, atol=1e-4)
    standard.unfold_from(maps)
    assert torch.allclose(linear.weight, before.weight, atol=1e-5)
    assert torch.allclose(linear.bias, before.bias, atol=1e-4)


@pytest.mark.parametrize("head", HEADS[1:], ids=lambda head: head["kind"])
def test_a_head_learns_the_same_wherever_states_lie(pretrained, head: Any) -> None:
    model, head = pretrained("bert"), {**head, "layers": "last", "mix": "concat"}
    here = frozen(model, head).training.epochs_seen
    there = frozen(elsewhere(model, by=20.0, times=5.0), head).training.epochs_seen
    losses = [[epoch.loss for epoch in of] for of in (here, there)]
    assert losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head["kind"])
def test_a_head_goes_on_from_what_it_has_learned(pretrained, head: Any) -> None:
    first = frozen(pretrained("bert"), head)
    again = frozen(first.model, head, epochs=0)
    for before, after in zip(first.best.predictions[0], again.best.predictions[0], strict=True):
        assert before.answer == after.answer
    on = frozen(first.model, head, epochs=1)
    assert on.training.epochs_seen[0].loss < first.training.epochs_seen[0].loss


def test_standard_states_go_with_standard_numbers(pretrained) -> None:
    settings = {"adaptation": "frozen", "head": {"kind": "plain", "read": "mean"}}
    task, model = table_task("things", Columns(), "number"), pretrained("bert")
    answers: list[list[Any]] = []
    for epochs in (1, 0):
        found = finetune(
            model, task, train=numbers(), dev=numbers(), epochs=epochs, calibrate=False, **settings
        )
        model = found.model
        answers.append([each.answer for each in found.best.predictions[0]])
    assert answers[1] == pytest.approx(answers[0], abs=0.2)
    assert max(answers[0]) - min(answers[0]) > 1
