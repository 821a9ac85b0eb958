"""The rounds of pre-training steps end with every figure that can be relied upon."""

from pathlib import Path

import pytest

from bertwright.bench import pretraining, turns
from bertwright.bench.workload import Workload
from bertwright.errors import UserError

KEYS = {"size", "tokens_per_second", "peak_share", "against_default", "against_best"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.01)
    # The children inherit it: their steps run as they are written.
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")


def test_figures_against_the_peers(data_folder: Path) -> None:
    workload = Workload("tiny", batch_tokens=32, length=16)
    said: list[str] = []
    row = pretraining.compare([workload], 1, False, data_folder, said.append)[0]
    assert row.keys() >= KEYS | {"loading_share"}
    assert row["size"] == "tiny"
    assert all(row[key] > 0 for key in KEYS - {"size"})
    assert said


def test_a_size_that_does_not_exist_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'bert-tiny'"):
        pretraining.compare([Workload("tine")], 1, True, None, lambda _: None)
