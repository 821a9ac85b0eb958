"""Perturbations of the embeddings: cost, effect, and refusal of unsuitable tasks."""

from typing import Any

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.encoder.encoder import Encoder
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.finetuning.perturbation import FreeLBConfig, SMARTConfig
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes, numbers, several_labels, tagged

CLASSES, TAGS = table_task("task", Columns()), tagging_task("task")
NUMBERS = table_task("task", Columns(), "number")
SETTINGS = {
    "dropout": 0.0,
    "weight_decay": 0.0,
    "compile": False,
    "batch_size": 8,
    "precision": "float32",
}


def run(model, perturbation: Any, task=CLASSES, examples=None, **settings: Any) -> FineTuningResult:
    examples = classes() if examples is None else examples
    merged = {
        **SETTINGS,
        "epochs": 1,
        "learning_rate": 3e-3,
        "perturbation": perturbation,
        **settings,
    }
    return finetune(model, task, train=examples, dev=examples, **merged)


@pytest.mark.parametrize("perturbation", ["freelb", "smart"])
@pytest.mark.parametrize(
    ("task", "examples"),
    [
        pytest.param(CLASSES, classes(), id="classes"),
        pytest.param(TAGS, tagged(), id="tags", marks=pytest.mark.full),
    ],
)
def test_perturbed_training_learns(pretrained, perturbation: str, task, examples) -> None:
    assert run(pretrained(), perturbation, task, examples, epochs=16).scores[0] > 0.9


def test_numbers_are_compared_by_their_distance(pretrained) -> None:
    result = run(pretrained(), {"kind": "smart", "step_size": 0.01}, NUMBERS, numbers(), epochs=2)
    assert all(epoch.loss == epoch.loss for epoch in result.run.epoch_reports)


@pytest.mark.parametrize(
    "perturbation",
    [
        FreeLBConfig(init_norm=0.0, step_size=1e-9, num_steps=1),
        FreeLBConfig(init_norm=0.0, step_size=1e-9, num_steps=3),
        SMARTConfig(init_norm=1e-9, step_size=1e-9),
    ],
    ids=str,
)
def test_zero_perturbation_changes_nothing(pretrained, perturbation: Any) -> None:
    plain, changed = run(pretrained(), None), run(pretrained(), perturbation)
    assert changed.run.epoch_reports[0].loss == pytest.approx(
        plain.run.epoch_reports[0].loss, rel=1e-4
    )
    for a, b in zip(
        plain.model.task_model.parameters(), changed.model.task_model.parameters(), strict=True
    ):
        # The gradient of a key bias is rounding error, which Adam turns into steps.
        assert torch.allclose(a, b, atol=1e-3)


@pytest.mark.parametrize("perturbation", ["freelb", "smart"])
def test_perturbation_raises_the_loss(pretrained, perturbation: str) -> None:
    settings = {"learning_rate": 1e-9}
    plain = run(pretrained(), None, **settings).run.epoch_reports[0].loss
    stated = {"kind": perturbation, "step_size": 0.5}
    harder = run(pretrained(), stated, **settings).run.epoch_reports[0].loss
    assert harder > plain


@pytest.mark.parametrize(
    ("perturbation", "passes"), [({"kind": "freelb", "num_steps": 4}, 4), ("smart", 3)]
)
def test_number_of_forward_passes_per_step(
    pretrained, monkeypatch, perturbation: Any, passes: int
) -> None:
    calls: list[int] = []
    forward = Encoder.forward

    def counted(encoder: Encoder, *args: Any, **kwargs: Any) -> torch.Tensor:
        if torch.is_grad_enabled():
            calls.append(1)
        return forward(encoder, *args, **kwargs)

    monkeypatch.setattr(Encoder, "forward", counted)
    result = run(pretrained(), perturbation)
    steps = len(result.run.encoded_tasks[0].items) // 8
    assert len(calls) == passes * steps


def test_incompatible_perturbation_is_refused(pretrained) -> None:
    with pytest.raises(UserError, match="the encoder is frozen: choose another adaptation"):
        run(pretrained(), "freelb", adaptation="frozen")
    labels = table_task("task", Columns(), "labels")
    with pytest.raises(UserError, match="smart needs classes or numbers, not output type labels"):
        run(pretrained(), "smart", labels, several_labels())
