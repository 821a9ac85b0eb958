"""Reading with memory is measured, and is what one pass is."""

import pytest

from bertwright.bench import remembering


def test_the_two_ways_are_timed_and_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "RECIPE", "transformer-xl-tiny")
    said: list[str] = []
    [row] = remembering.compare([64], 1, said.append)
    assert set(row) >= set(remembering.COLUMNS)
    assert row["difference"] < 1e-5
    assert len(said) == 1
