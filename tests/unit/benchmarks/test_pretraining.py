"""The pre-training benchmark reports every figure."""

from pathlib import Path

import pytest

from benchmarks import rounds
from benchmarks.pretraining import compare as pretraining
from benchmarks.pretraining.workload import Workload
from bertwright.core.errors import UserError

KEYS = {"size", "tokens_per_second", "peak_fraction", "against_default", "against_best"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.01)
    # Worker processes inherit it and run uncompiled.
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")


@pytest.mark.full
def test_figures_against_the_peers(data_folder: Path) -> None:
    workload = Workload("tiny", batch_tokens=32, sequence_length=16)
    lines: list[str] = []
    row = pretraining.compare([workload], 1, False, data_folder, lines.append)[0]
    assert row.keys() >= KEYS | {"loading_fraction"}
    assert row["size"] == "tiny"
    assert all(row[key] > 0 for key in KEYS - {"size"})
    assert lines


def test_a_size_that_does_not_exist_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'bert-tiny'"):
        pretraining.compare([Workload("tine")], 1, True, None, lambda _: None)
