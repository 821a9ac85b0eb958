"""A fixture that shortens pre-training runs."""

import pytest

from bertwright.training.evaluation import evaluator, held_out
from bertwright.training.pretraining import run as pretraining_run


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Skip or shorten hardware measurements, held-out evaluations and plots."""
    patch.setattr(pretraining_run, "matmul_peak", lambda *_: 1e11)
    patch.setattr(pretraining_run, "save_loss_plot", lambda *_: None)
    patch.setattr(evaluator, "NUM_TOKENS_DURING_TRAINING", 512)
    patch.setattr(held_out, "NUM_TOKENS_AT_END", 4096)
    patch.setattr(held_out, "NUM_WORD_BYTES", 500)
