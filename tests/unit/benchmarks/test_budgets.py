"""Runs under a budget are compared as whole processes, in interleaved rounds."""

from pathlib import Path

import psutil
import pytest

from benchmarks import budgets
from benchmarks.budgets import BudgetedRun, busy_processes, compare
from bertwright.core.errors import UserError


def test_steps_are_relative_to_the_last_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "src" / "bertwright").mkdir(parents=True)
    calls: list[tuple[str, int]] = []
    before = len(psutil.Process().children())

    def run(budgeted_run: BudgetedRun, *_: object) -> tuple[float, int]:
        calls.append((budgeted_run.name, len(psutil.Process().children()) - before))
        return 300.0, {"default": 90, "compile=false": 100, "other checkout": 80}[budgeted_run.name]

    monkeypatch.setattr(budgets, "run_pretraining", run)
    rows = compare(Path("data"), "modern-tiny", 300.0, 2, tmp_path, lambda line: None)
    busy = [("default", 4), ("compile=false", 4)] * 2
    assert calls == busy + [("default", 0), ("other checkout", 0)] * 2
    assert [row["relative_steps"] for row in rows] == [0.9, 1.0, 1.125, 1.0]
    assert [row["steps"] for row in rows] == [[90] * 2, [100] * 2, [90] * 2, [80] * 2]


def test_a_folder_that_is_not_a_checkout_is_refused_before_any_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it has no src/bertwright"):
        compare(Path("data"), "modern-tiny", 300.0, 2, tmp_path, lambda line: None)


def test_busy_processes_end_with_the_block() -> None:
    before = psutil.Process().children()
    with busy_processes(3):
        assert len(psutil.Process().children()) == len(before) + 3
    assert psutil.Process().children() == before
