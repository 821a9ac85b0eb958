"""Time and steps of ``pretrain --budget``: with and without busy processes and the compiler.

On a quiet machine another checkout may be compared. Every run is a process with empty caches, as on
a machine that has never trained.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.variations import checkout_environment

NUM_BUSY_PROCESSES = 4

COLUMNS = {
    "machine": "machine",
    "run": "run",
    "budget_seconds": "budget, s",
    "seconds": "seconds of the process",
    "steps": "steps",
    "relative_steps": "steps relative to the last run",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class BudgetedRun:
    """A training run: overrides of the recipe and environment variables."""

    name: str
    overrides: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def compare(
    data: Path,
    recipe: str,
    budget_seconds: float,
    num_runs: int,
    other_checkout: Path | None,
    log: Log,
) -> list[dict[str, Any]]:
    """Return a row for every run: compiled and uncompiled beside busy processes; on a quiet machine
    compiled, and by the other checkout if there is one."""
    default = BudgetedRun("default")
    quiet = [default]
    if other_checkout is not None:
        quiet.append(
            BudgetedRun("other checkout", environment=checkout_environment(other_checkout))
        )
    groups = {
        f"beside {NUM_BUSY_PROCESSES} busy processes": [
            default,
            BudgetedRun("compile=false", ["compile=false"]),
        ],
        "quiet": quiet,
    }
    rows: list[dict[str, Any]] = []
    for machine, runs in groups.items():
        with busy_processes(NUM_BUSY_PROCESSES if machine != "quiet" else 0):
            results = _run_interleaved(runs, data, recipe, budget_seconds, num_runs, log)
        reference = median(steps for _, steps in results[runs[-1].name])
        for run in runs:
            seconds, steps = zip(*results[run.name], strict=True)
            rows.append(
                {
                    "machine": machine,
                    "run": run.name,
                    "budget_seconds": budget_seconds,
                    "seconds": [round(s, 1) for s in seconds],
                    "steps": list(steps),
                    "relative_steps": median(steps) / reference,
                }
            )
    return rows


def _run_interleaved(
    runs: Sequence[BudgetedRun],
    data: Path,
    recipe: str,
    budget_seconds: float,
    num_runs: int,
    log: Log,
) -> Mapping[str, list[tuple[float, int]]]:
    results: dict[str, list[tuple[float, int]]] = {run.name: [] for run in runs}
    for number in range(num_runs):
        for run in runs:
            seconds, steps = run_pretraining(run, data, recipe, budget_seconds)
            results[run.name].append((seconds, steps))
            log(f"{run.name}, {number + 1} of {num_runs}: {steps:,} steps in {seconds:.1f} s")
    return results


def run_pretraining(
    budgeted_run: BudgetedRun, data: Path, recipe: str, budget_seconds: float
) -> tuple[float, int]:
    """Return the seconds of a process that trains, and its steps."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": f"{folder}/cache",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/code",
        }
        environment |= budgeted_run.environment
        command = [sys.executable, "-m", "bertwright", "pretrain", recipe, *budgeted_run.overrides]
        command += [
            "--data",
            str(data),
            "-o",
            f"{folder}/out",
            "--budget",
            f"{budget_seconds:.0f}s",
        ]
        start = time.monotonic()
        process = subprocess.run(
            [*command, "--json"], env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - start
        if process.returncode:
            raise RuntimeError(f"{budgeted_run.name}: {process.stderr.strip()}")
        return seconds, json.loads(process.stdout)["steps"]


@contextmanager
def busy_processes(num_processes: int) -> Generator[None]:
    """Keep processes busy within the block."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
