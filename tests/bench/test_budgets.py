"""Runs under a budget are compared as whole processes, in turns."""

from pathlib import Path

import psutil
import pytest

from bertwright.bench import budgets
from bertwright.bench.budgets import Contestant, busy, compare
from bertwright.errors import UserError


def test_every_contestant_has_its_steps_beside_those_of_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "src" / "bertwright").mkdir(parents=True)
    turns: list[tuple[str, int]] = []
    before = len(psutil.Process().children())

    def run(contestant: Contestant, *_: object) -> tuple[float, int]:
        turns.append((contestant.name, len(psutil.Process().children()) - before))
        return 300.0, {"as it is": 90, "compile=false": 100, "before": 80}[contestant.name]

    monkeypatch.setattr(budgets, "run", run)
    rows = compare(Path("data"), "modern-tiny", 300.0, 2, tmp_path, lambda line: None)
    beside = [("as it is", 4), ("compile=false", 4)] * 2
    assert turns == beside + [("as it is", 0), ("before", 0)] * 2
    assert [row["share"] for row in rows] == [0.9, 1.0, 1.125, 1.0]
    assert [row["steps"] for row in rows] == [[90] * 2, [100] * 2, [90] * 2, [80] * 2]


def test_a_folder_that_is_no_checkout_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it has no src/bertwright"):
        compare(Path("data"), "modern-tiny", 300.0, 2, tmp_path, lambda line: None)


def test_processes_are_busy_only_meanwhile() -> None:
    before = psutil.Process().children()
    with busy(3):
        assert len(psutil.Process().children()) == len(before) + 3
    assert psutil.Process().children() == before
