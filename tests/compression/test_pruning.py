"""Weights that go: exactly as many as is said, for good, and those that should."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.pruning import (
    MagnitudePruning,
    MovementPruning,
    OfMagnitude,
    by_scores,
    highest,
)
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.tasks.adaptation.low_rank import matrices_of
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes

CLASSES = table_task("colours", Columns())
QUICK = {"rate": 3e-3, "dropout": 0.0, "compile": False, "batch": 8, "epochs": 3}
PARTS = ("attention", "feed_forward")
CUBIC = {
    "kind": "parts",
    "parts": [
        {"share": 2, "value": {"kind": "cubic", "from": 1.0, "to": 0.2}},
        {"share": 1, "value": 0.2},
    ],
}


def pruned(pretrained, **settings) -> FineTuneResult:
    given = {"train": classes(), "dev": classes()}
    return finetune(pretrained(), CLASSES, **given, **QUICK | settings)


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    st.floats(0, 1),
)
def test_as_many_are_kept_as_is_said_and_none_is_lower_than_one_that_goes(
    values: list[int], share: float
) -> None:
    of = torch.tensor(values, dtype=torch.float32)
    kept = highest(of, share)
    assert int(kept.sum()) == int(share * len(values) + 1e-6)
    if 0 < kept.sum() < len(values):
        assert of[kept].min() >= of[~kept].max()


@pytest.mark.parametrize("kind", ["magnitude", "movement"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_is_pruned_is_zero_in_the_model_that_is_kept(
    pretrained, tmp_path: Path, kind: str, precision: str
) -> None:
    adaptation = {"kind": kind, "kept": CUBIC}
    result = pruned(pretrained, adaptation=adaptation, out=tmp_path / "p", precision=precision)
    small = load(tmp_path / "p")
    assert isinstance(small, FineTuned)
    known = dict(small.net.encoder.named_parameters())
    for name in matrices_of(small.net.encoder, PARTS):
        assert int((known[name] != 0).sum()) == int(0.2 * known[name].numel() + 1e-6), name
    assert small.net.adaptation.model_dump() == {
        "kind": "full",
        "layer_decay": 1.0,
        "reinitialised": 0,
    }
    # The first epochs, which had pruned less, are not the best, whatever they score.
    assert result.best.report.epoch > 1


@pytest.mark.parametrize("kind", ["magnitude", "movement"])
def test_keeping_everything_is_plain_training_bit_for_bit(pretrained, kind: str) -> None:
    plain = pruned(pretrained, clip=None).model.net.state_dict()
    kept = pruned(pretrained, clip=None, adaptation={"kind": kind, "kept": 1.0}).model.net
    for name, tensor in kept.state_dict().items():
        assert torch.equal(tensor, plain[name]), name


def test_scores_get_the_gradient_of_the_mask(pretrained) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, scores, wanted = torch.randn(3, 6, 5, generator=generator, dtype=torch.float64)
    weight.requires_grad_()
    scores.requires_grad_()
    found = by_scores(weight, scores, 0.4)
    mask = highest(scores, 0.4)
    assert torch.equal(found, weight * mask)
    ((found - wanted) ** 2).sum().backward()
    gradient = 2 * (found - wanted).detach()
    torch.testing.assert_close(weight.grad, gradient * mask)
    torch.testing.assert_close(scores.grad, gradient * weight.detach())


def test_among_all_matrices_the_smaller_ones_go(pretrained) -> None:
    encoder = pretrained().model.encoder
    names = matrices_of(encoder, PARTS)
    weights = {n: p.detach() * (1 + k) for k, (n, p) in enumerate(encoder.named_parameters())}
    for among in ("matrix", "all"):
        changes = OfMagnitude(MagnitudePruning(kept=0.3, among=among), names)
        changes.share = 0.3
        found = changes(weights)
        left = torch.cat([(found[n] != 0).flatten() for n in names])
        assert left.double().mean().item() == pytest.approx(0.3, abs=1e-2)
        kept = torch.cat([found[n][found[n] != 0].abs() for n in names]).min()
        gone = torch.cat([weights[n][found[n] == 0].abs() for n in names]).max()
        assert (kept >= gone) == (among == "all")


def test_what_cannot_be_pruned_is_said(pretrained) -> None:
    with pytest.raises(UserError, match="has no matrices: choose another"):
        finetune(
            pretrained("elmo"),
            CLASSES,
            train=classes(),
            dev=classes(),
            adaptation={"kind": "movement", "kept": 0.5, "sublayers": ["feed_forward"]},
            **QUICK,
        )
    assert MovementPruning(kept=0.5).usual_rate(pretrained().model.recipe) > 0
