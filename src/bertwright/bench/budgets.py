"""Whether a budget of time is kept, and how many steps are made in it: on a quiet machine and
beside busy processes, with the compiler and without, and as another checkout does.

Every run is a process of its own with empty caches, as on a machine that has never trained.
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

from bertwright.bench.variations import of_checkout

BUSY_PROCESSES = 4

COLUMNS = {
    "machine": "machine",
    "run": "run",
    "budget_seconds": "budget, s",
    "seconds": "seconds of the whole process",
    "steps": "steps",
    "share": "steps as a part of the last run's",
}
"""What a document shows, by key."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Contestant:
    """A way to train under a budget: changes to the recipe, and environment variables."""

    name: str
    changes: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def compare(
    data: Path, recipe: str, budget: float, times: int, before: Path | None, say: Say
) -> list[dict[str, Any]]:
    """Return a row of figures for every contestant: beside busy processes as it is and uncompiled,
    on a quiet machine as it is and, where one is named, as the checkout ``before`` does."""
    usual = Contestant("as it is")
    quiet = [usual]
    if before is not None:
        quiet.append(Contestant("before", variables=of_checkout(before)))
    groups = {
        f"beside {BUSY_PROCESSES} busy processes": [
            usual,
            Contestant("compile=false", ["compile=false"]),
        ],
        "quiet": quiet,
    }
    rows: list[dict[str, Any]] = []
    for machine, contestants in groups.items():
        with busy(BUSY_PROCESSES if machine != "quiet" else 0):
            found = _in_turns(contestants, data, recipe, budget, times, say)
        reference = median(steps for _, steps in found[contestants[-1].name])
        for contestant in contestants:
            seconds, steps = zip(*found[contestant.name], strict=True)
            rows.append(
                {
                    "machine": machine,
                    "run": contestant.name,
                    "budget_seconds": budget,
                    "seconds": [round(s, 1) for s in seconds],
                    "steps": list(steps),
                    "share": median(steps) / reference,
                }
            )
    return rows


def _in_turns(
    contestants: Sequence[Contestant],
    data: Path,
    recipe: str,
    budget: float,
    times: int,
    say: Say,
) -> Mapping[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = {c.name: [] for c in contestants}
    for number in range(times):
        for contestant in contestants:
            seconds, steps = run(contestant, data, recipe, budget)
            found[contestant.name].append((seconds, steps))
            say(f"{contestant.name}, {number + 1} of {times}: {steps:,} steps in {seconds:.1f} s")
    return found


def run(contestant: Contestant, data: Path, recipe: str, budget: float) -> tuple[float, int]:
    """Return the seconds of a whole run as a process, and its steps."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": f"{folder}/cache",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/code",
        }
        environment |= contestant.variables
        command = [sys.executable, "-m", "bertwright", "pretrain", recipe, *contestant.changes]
        command += ["--data", str(data), "-o", f"{folder}/out", "--budget", f"{budget:.0f}s"]
        began = time.monotonic()
        ended = subprocess.run(
            [*command, "--json"], env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        if ended.returncode:
            raise RuntimeError(f"{contestant.name}: {ended.stderr.strip()}")
        return seconds, json.loads(ended.stdout)["steps"]


@contextmanager
def busy(number: int) -> Generator[None]:
    """Keep so many processes computing meanwhile."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
