"""Reading with memory equals one banded pass."""

import pytest

from benchmarks import memory as memory_speed


def test_segments_with_memory_equal_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_speed, "RECIPE", "transformer-xl-tiny")
    lines: list[str] = []
    [row] = memory_speed.compare([64], 1, lines.append)
    assert set(row) >= set(memory_speed.COLUMNS)
    assert row["difference"] < 1e-5
    assert len(lines) == 1
