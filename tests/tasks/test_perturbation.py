"""Perturbations: small changes of the embeddings, which cost what they say and leave the rest."""

from typing import Any

import pytest
import torch

from bertwright.encoder.encoder import Encoder
from bertwright.errors import UserError
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.perturbation import FreeLb, Smart
from small_tasks import classes, numbers, several_labels, tagged

CLASSES, TAGS = table_task("own", Columns()), tagging_task("own")
NUMBERS = table_task("own", Columns(), "number")
SETTINGS = {"dropout": 0.0, "decay": 0.0, "compile": False, "batch": 8, "precision": "float32"}


def run(model, perturbation: Any, task=CLASSES, examples=None, **settings: Any) -> FineTuneResult:
    examples = classes() if examples is None else examples
    chosen = {**SETTINGS, "epochs": 1, "rate": 3e-3, "perturbation": perturbation, **settings}
    return finetune(model, task, train=examples, dev=examples, **chosen)


@pytest.mark.parametrize("perturbation", ["freelb", "smart"])
@pytest.mark.parametrize(
    ("task", "examples"), [(CLASSES, classes()), (TAGS, tagged())], ids=["classes", "tags"]
)
def test_what_is_perturbed_is_learned(pretrained, perturbation: str, task, examples) -> None:
    assert run(pretrained(), perturbation, task, examples, epochs=16).scores[0] > 0.9


def test_numbers_are_compared_by_their_distance(pretrained) -> None:
    found = run(pretrained(), {"kind": "smart", "step": 0.01}, NUMBERS, numbers(), epochs=2)
    assert all(epoch.loss == epoch.loss for epoch in found.training.epochs_seen)


@pytest.mark.parametrize(
    "perturbation",
    [
        FreeLb(size=0.0, step=1e-9, steps=1),
        FreeLb(size=0.0, step=1e-9, steps=3),
        Smart(size=1e-9, step=1e-9),
    ],
    ids=str,
)
def test_a_change_of_nothing_changes_nothing(pretrained, perturbation: Any) -> None:
    plain, changed = run(pretrained(), None), run(pretrained(), perturbation)
    assert changed.training.epochs_seen[0].loss == pytest.approx(
        plain.training.epochs_seen[0].loss, rel=1e-4
    )
    for a, b in zip(plain.model.net.parameters(), changed.model.net.parameters(), strict=True):
        # A bias of keys has no gradient but its rounding, of which Adam makes steps.
        assert torch.allclose(a, b, atol=1e-3)


@pytest.mark.parametrize("perturbation", ["freelb", "smart"])
def test_a_change_that_raises_the_loss_is_found(pretrained, perturbation: str) -> None:
    settings = {"rate": 1e-9}
    plain = run(pretrained(), None, **settings).training.epochs_seen[0].loss
    stated = {"kind": perturbation, "step": 0.5}
    harder = run(pretrained(), stated, **settings).training.epochs_seen[0].loss
    assert harder > plain


@pytest.mark.parametrize(
    ("perturbation", "passes"), [({"kind": "freelb", "steps": 4}, 4), ("smart", 3)]
)
def test_a_step_costs_the_passes_that_are_said(
    pretrained, monkeypatch, perturbation: Any, passes: int
) -> None:
    calls: list[int] = []
    forward = Encoder.forward

    def counted(encoder: Encoder, *args: Any, **kwargs: Any) -> torch.Tensor:
        if torch.is_grad_enabled():
            calls.append(1)
        return forward(encoder, *args, **kwargs)

    monkeypatch.setattr(Encoder, "forward", counted)
    found = run(pretrained(), perturbation)
    steps = len(found.training.parts[0].items) // 8
    assert len(calls) == passes * steps


def test_what_cannot_be_perturbed_is_refused(pretrained) -> None:
    with pytest.raises(UserError, match="the encoder stays as it is: choose another adaptation"):
        run(pretrained(), "freelb", adaptation="frozen")
    labels = table_task("own", Columns(), "labels")
    with pytest.raises(UserError, match="smart compares classes or numbers, not answers of labels"):
        run(pretrained(), "smart", labels, several_labels())
