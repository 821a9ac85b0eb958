"""Pre-training that is over in a moment."""

import pytest

from bertwright.training import evaluation, pretraining_run, watching


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Leave out, or make small, what takes longer than a few steps: measuring the machine, reading
    held-out text, drawing."""
    patch.setattr(pretraining_run, "known_matrix_peak", lambda *_: 1e11)
    patch.setattr(pretraining_run, "draw_losses", lambda *_: None)
    patch.setattr(watching, "TOKENS_DURING", 512)
    patch.setattr(evaluation, "TOKENS_AT_END", 4096)
    patch.setattr(evaluation, "WORD_BYTES", 500)
