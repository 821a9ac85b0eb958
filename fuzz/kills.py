"""Kill writing verbs at random moments.

They must leave no partial output, and the next run must succeed.
"""

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.forks import run
from fuzz.workspace import make_workspace
from fuzz.writers import Tree, Writer, tree, writers

OUTPUT_FOLDER = "output"
"""Folder of the output, always the same: some outputs contain its path."""


@dataclass
class Report:
    """Report of some kills."""

    seed: int
    kills: int = 0
    killed: Counter[str] = field(default_factory=Counter[str])
    """Kills before the end of the verb, by verb."""
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def as_dict(self, seconds: float) -> dict[str, Any]:
        """Return plain data."""
        return {
            "kills": self.kills,
            "killed": sum(self.killed.values()),
            "by_verb": dict(sorted(self.killed.items())),
            "half_written": sum(f["kind"] == "half-written" for f in self.findings),
            "not_resumed": sum(f["kind"] == "not resumed" for f in self.findings),
            "findings": self.findings,
            "seed": self.seed,
            "seconds": round(seconds, 1),
        }


def kills(folder: Path, count: int, seed: int, only: str | None = None) -> dict[str, Any]:
    """Return the report of ``count`` kills over all writing verbs, or of ``only`` one."""
    start, report = time.monotonic(), Report(seed)
    selected = [w for w in writers(make_workspace(folder / "inputs")) if only in (None, w.name)]
    expected = {writer.name: _uninterrupted(writer, folder) for writer in selected}
    number = 0
    while report.kills < count:
        writer = selected[number % len(selected)]
        rng = random.Random(f"{seed} {number}")
        _kill(writer, *expected[writer.name], folder / OUTPUT_FOLDER, rng, number, report)
        number += 1
    return report.as_dict(time.monotonic() - start)


def _uninterrupted(writer: Writer, folder: Path) -> tuple[Tree, float]:
    """Return the output of an uninterrupted run, and its seconds."""
    output = folder / OUTPUT_FOLDER
    output.mkdir()
    process = run(writer.command(output))
    if process.code != 0:
        raise RuntimeError(f"{writer.name} failed: {process.errors}")
    files = tree(output)
    shutil.rmtree(output)
    return files, process.seconds


def _kill(
    writer: Writer,
    expected: Tree,
    seconds: float,
    output: Path,
    rng: random.Random,
    number: int,
    report: Report,
) -> None:
    output.mkdir()

    def add_finding(kind: str, problem: str) -> None:
        report.findings.append(
            {"kind": kind, "verb": writer.name, "number": number, "problem": problem}
        )

    process = run(writer.command(output), kill_after=rng.uniform(0, 1.05 * seconds))
    report.kills += 1
    report.killed[writer.name] += process.code is None
    if problem := writer.half_written(output, expected):
        add_finding("half-written", problem)
    resumes = writer.resumes(output)
    if process.code is None or resumes:
        # Half of the resumed runs are killed, too.
        if rng.random() < 0.5:
            kill_after = rng.uniform(0, 1.05 * seconds)
            process = run(writer.command(output, resumes), kill_after=kill_after)
            report.kills += 1
            report.killed[writer.name] += process.code is None
            if problem := writer.half_written(output, expected):
                add_finding("half-written", problem)
        if not writer.finished(output):
            process = run(writer.command(output, writer.resumes(output)))
            if process.code != 0:
                add_finding("not resumed", process.errors.strip()[-500:])
    if (files := tree(output)) != expected:
        different = sorted({*files.items()} ^ {*expected.items()})
        add_finding("not resumed", f"{different[0][0]} differs from that of an uninterrupted run")
    if leftovers := [f.name for f in output.rglob("*") if ".unfinished-" in f.name]:
        add_finding("half-written", f"{leftovers[0]} is left behind")
    shutil.rmtree(output)
