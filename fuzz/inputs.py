"""Strange inputs by the hundred thousand: every one ends in one sentence or a result."""

import random
import resource
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertwright.errors import UserError
from fuzz.case import Case, Kind
from fuzz.endpoints import Endpoints
from fuzz.folders import DataFolders, ModelFolders, StockFolders
from fuzz.recipes import Overrides, Recipes, Settings
from fuzz.texts import Predictions, TaskFiles, TextFiles
from fuzz.workspace import Workspace, make_workspace

MOST_SECONDS = 10.0
"""Of one input; a machine that does other things as well is slow at times."""

LONGEST_SENTENCE = 2_000
MEMORY_BYTES = 6 << 30
SHOWN = 50
"""Findings that are reported; of the others only the number."""


def kinds_over(made: Workspace, scratch: Path) -> list[Kind]:
    """Return every kind of inputs, over a workspace; ``scratch`` is for their files."""
    return [
        *(Overrides(), Recipes(made, scratch), Settings(made, scratch)),
        *(TextFiles(made, scratch), TaskFiles(made, scratch), Predictions(made, scratch)),
        *(Endpoints(made), ModelFolders(made, scratch), StockFolders(made, scratch)),
        DataFolders(made, scratch),
    ]


def inputs(
    folder: Path, count: int, seed: int, only: str | None = None, number: int | None = None
) -> dict[str, Any]:
    """Return what so many inputs have come to, or the one of this ``number``."""
    made = make_workspace(folder / "inputs")
    scratch = folder / "scratch"
    scratch.mkdir()
    kinds = [kind for kind in kinds_over(made, scratch) if only in (None, kind.name)]
    _limit_memory()
    began, findings, by_kind = time.monotonic(), list[dict[str, Any]](), Counter[str]()
    sentences = 0
    for index in range(count) if number is None else [number]:
        draw = random.Random(f"{seed} {index}")
        kind = draw.choices(kinds, [kind.weight for kind in kinds])[0]
        by_kind[kind.name] += 1
        case = kind.case(draw)
        ended = _ended(case, scratch)
        sentences += ended is None
        if isinstance(ended, dict):
            findings.append({"number": index, "kind": kind.name, **ended})
            if number is not None:
                print(ended["traceback"])
    seconds = time.monotonic() - began
    again = f"python -m fuzz inputs --seed {seed} --number N"
    return {
        "inputs": sum(by_kind.values()),
        "by_kind": dict(sorted(by_kind.items())),
        "sentences": sentences,
        "num_findings": len(findings),
        "findings": _distinct(findings),
        "again": again if only is None else f"{again} --only {only!r}",
        "seed": seed,
        "seconds": round(seconds, 1),
    }


def _ended(case: Case, scratch: Path) -> dict[str, Any] | bool | None:
    """Return None for a sentence, True for a result, and what is wrong else."""
    began, ended = time.process_time(), None
    try:
        case.run()
        ended = True
    except UserError as error:
        message = str(error)
        if "\n" in message or not 0 < len(message) <= LONGEST_SENTENCE:
            return _finding(case, "no sentence", message[:300])
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = _where(error)
        return _finding(case, f"{type(error).__name__} at {where}", str(error)[:300])
    if (seconds := time.process_time() - began) > MOST_SECONDS:
        return _finding(case, "slow", f"{seconds:.0f} s")
    if ended is None and case.output is not None and case.output.exists():
        return _finding(case, "half-written", str(case.output))
    if left := [path.name for path in scratch.rglob("*.unfinished-*")]:
        return _finding(case, "left behind", left[0])
    return ended


def _finding(case: Case, what: str, message: str) -> dict[str, Any]:
    return {
        "what": what,
        "message": ascii(message),
        "input": ascii(case.what[:400]),
        "traceback": traceback.format_exc(),
    }


def _where(error: BaseException) -> str:
    """Return the last line of ours that an error has passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/bertwright/" in frame.filename] or frames
    return f"{ours[-1].filename.rpartition('/bertwright/')[2]}:{ours[-1].lineno}"


def _distinct(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first finding of every kind, with how many there are."""
    counts = Counter((f["kind"], f["what"]) for f in findings)
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for finding in findings:
        shown = {name: value for name, value in finding.items() if name != "traceback"}
        key = finding["kind"], finding["what"]
        first.setdefault(key, {**shown, "times": counts[key]})
    return list(first.values())[:SHOWN]


def _limit_memory() -> None:
    """Let what takes much memory fail, where the system can tell."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
