"""Kill writing verbs at random moments: nothing half-written, and the next run ends well."""

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

PLACE = "place"
"""The folder that is written to, always the same: some outputs name it."""


@dataclass
class Report:
    """What some kills have come to."""

    seed: int
    kills: int = 0
    alive: Counter[str] = field(default_factory=Counter[str])
    """By verb, how many were killed before they had ended."""
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def as_dict(self, seconds: float) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "kills": self.kills,
            "alive": sum(self.alive.values()),
            "by_verb": dict(sorted(self.alive.items())),
            "half_written": sum(f["kind"] == "half-written" for f in self.findings),
            "not_resumed": sum(f["kind"] == "not resumed" for f in self.findings),
            "findings": self.findings,
            "seed": self.seed,
            "seconds": round(seconds, 1),
        }


def kills(folder: Path, count: int, seed: int, only: str | None = None) -> dict[str, Any]:
    """Return what so many kills have come to, over all writing verbs or ``only`` one."""
    began, report = time.monotonic(), Report(seed)
    known = [w for w in writers(make_workspace(folder / "inputs")) if only in (None, w.name)]
    whole = {writer.name: _whole(writer, folder) for writer in known}
    number = 0
    while report.kills < count:
        writer = known[number % len(known)]
        draw = random.Random(f"{seed} {number}")
        _kill(writer, *whole[writer.name], folder / PLACE, draw, number, report)
        number += 1
    return report.as_dict(time.monotonic() - began)


def _whole(writer: Writer, folder: Path) -> tuple[Tree, float]:
    """Return what a verb writes that is left alone, and how long that takes."""
    place = folder / PLACE
    place.mkdir()
    ended = run(writer.command(place))
    if ended.code != 0:
        raise RuntimeError(f"{writer.name} cannot be run: {ended.errors}")
    whole = tree(place)
    shutil.rmtree(place)
    return whole, ended.seconds


def _kill(
    writer: Writer,
    whole: Tree,
    seconds: float,
    place: Path,
    draw: random.Random,
    number: int,
    report: Report,
) -> None:
    place.mkdir()

    def find(kind: str, what: str) -> None:
        report.findings.append({"kind": kind, "verb": writer.name, "number": number, "what": what})

    ended = run(writer.command(place), kill_after=draw.uniform(0, 1.05 * seconds))
    report.kills += 1
    report.alive[writer.name] += ended.code is None
    if wrong := writer.half_written(place, whole):
        find("half-written", wrong)
    resumes = writer.resumes(place)
    if ended.code is None or resumes:
        # Another kill, on the way back, for half of them.
        if draw.random() < 0.5:
            after = draw.uniform(0, 1.05 * seconds)
            ended = run(writer.command(place, resumes), kill_after=after)
            report.kills += 1
            report.alive[writer.name] += ended.code is None
            if wrong := writer.half_written(place, whole):
                find("half-written", wrong)
        if not writer.finished(place):
            ended = run(writer.command(place, writer.resumes(place)))
            if ended.code != 0:
                find("not resumed", ended.errors.strip()[-500:])
    if (there := tree(place)) != whole:
        odd = sorted({*there.items()} ^ {*whole.items()})
        find("not resumed", f"{odd[0][0]} is not as it is without a kill")
    if left := [f.name for f in place.rglob("*") if ".unfinished-" in f.name]:
        find("half-written", f"{left[0]} is left behind")
    shutil.rmtree(place)
