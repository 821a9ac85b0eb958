"""Standardised features: heads trained on them work on the original features."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.standardiser import Standardiser
from small_tasks import numbers, tagged

STATES = torch.randn(50, 6, generator=torch.Generator().manual_seed(1)) * 3 + 40

HEADS: list[Any] = [
    {"kind": "plain", "pooling": "positions", "layers": "last-2", "mix": "sum"},
    {"kind": "dense", "pooling": "positions"},
    {"kind": "bilstm", "width": 16, "depth": 1, "layers": "last-2", "mix": "learned"},
]


def frozen(model: TextModel, head: Any, **settings: Any) -> FineTuningResult:
    merged = {
        "dropout": 0.0,
        "calibrate": False,
        "precision": "float32",
        "epochs": 3,
        "learning_rate": 1e-2,
    } | settings
    task = tagging_task("colours")
    return finetune(
        model, task, train=tagged(), dev=tagged(), adaptation="frozen", head=head, **merged
    )


def shifted(model: TextModel, by: float, times: float) -> TextModel:
    """Return a model whose last hidden states are shifted and scaled."""
    moved = deepcopy(model)
    last = list(moved.model.encoder.named_parameters())
    with torch.no_grad():
        for name, parameter in last[-2:]:
            assert "norm" in name
            parameter.mul_(times)
            if name.endswith("bias"):
                parameter.add_(by)
    return moved


def test_standardised_features_have_mean_0_and_deviation_1() -> None:
    standardised = Standardiser.fit(STATES.split(7))(STATES)
    assert torch.allclose(standardised.mean(0), torch.zeros(6), atol=1e-5)
    assert torch.allclose(standardised.std(0, correction=0), torch.ones(6), atol=1e-5)


def test_constant_feature_is_standardised_to_zero() -> None:
    still = torch.cat([STATES, torch.full((50, 1), 7.0)], 1)
    assert Standardiser.fit([still])(still)[:, -1].abs().max() < 1e-3


def test_folding_and_unfolding_the_standardiser() -> None:
    standardiser, linear = Standardiser.fit([STATES]), torch.nn.Linear(6, 3)
    maps, before = [(linear.weight, linear.bias)], deepcopy(linear)
    expected = linear(standardiser(STATES))
    standardiser.fold_into(maps)
    assert torch.allclose(linear(STATES), expected, atol=1e-4)
    standardiser.unfold_from(maps)
    assert torch.allclose(linear.weight, before.weight, atol=1e-5)
    assert torch.allclose(linear.bias, before.bias, atol=1e-4)


@pytest.mark.parametrize("head", HEADS[1:], ids=lambda head: head["kind"])
def test_standardisation_makes_training_independent_of_scale_and_offset(
    pretrained, head: Any
) -> None:
    model, head = pretrained("bert"), {**head, "layers": "last", "mix": "concat"}
    here = frozen(model, head).run.epoch_reports
    there = frozen(shifted(model, by=20.0, times=5.0), head).run.epoch_reports
    losses = [[epoch.loss for epoch in of] for of in (here, there)]
    assert losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head["kind"])
def test_training_of_a_fine_tuned_head_continues(pretrained, head: Any) -> None:
    first = frozen(pretrained("bert"), head)
    again = frozen(first.model, head, epochs=0)
    for before, after in zip(first.best.predictions[0], again.best.predictions[0], strict=True):
        assert before.value == after.value
    on = frozen(first.model, head, epochs=1)
    assert on.run.epoch_reports[0].loss < first.run.epoch_reports[0].loss


def test_standardised_features_and_labels_round_trip(pretrained) -> None:
    settings = {"adaptation": "frozen", "head": {"kind": "plain", "pooling": "mean"}}
    task, model = table_task("things", Columns(), "number"), pretrained("bert")
    answers: list[list[Any]] = []
    for epochs in (1, 0):
        result = finetune(
            model, task, train=numbers(), dev=numbers(), epochs=epochs, calibrate=False, **settings
        )
        model = result.model
        answers.append([prediction.value for prediction in result.best.predictions[0]])
    assert answers[1] == pytest.approx(answers[0], abs=0.2)
    assert max(answers[0]) - min(answers[0]) > 1
