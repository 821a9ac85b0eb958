"""Random inputs; every one must end in a result or in a UserError of one sentence."""

import random
import resource
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from fuzz.case import Case, Kind
from fuzz.endpoints import Endpoints
from fuzz.folders import DataFolders, ModelFolders, StockFolders
from fuzz.recipes import Overrides, Recipes, Settings
from fuzz.texts import Predictions, TaskFiles, TextFiles
from fuzz.workspace import Workspace, make_workspace

MAX_SECONDS = 10.0
"""Limit of CPU time per input."""

MAX_SENTENCE_LENGTH = 2_000
MEMORY_BYTES = 6 << 30
MAX_FINDINGS = 50
"""Findings in the report; the others are only counted."""


def kinds_over(workspace: Workspace, scratch: Path) -> list[Kind]:
    """Return every source of inputs; ``scratch`` is a folder for their files."""
    return [
        *(Overrides(), Recipes(workspace, scratch), Settings(workspace, scratch)),
        *(
            TextFiles(workspace, scratch),
            TaskFiles(workspace, scratch),
            Predictions(workspace, scratch),
        ),
        *(Endpoints(workspace), ModelFolders(workspace, scratch), StockFolders(workspace, scratch)),
        DataFolders(workspace, scratch),
    ]


def inputs(
    folder: Path, count: int, seed: int, only: str | None = None, number: int | None = None
) -> dict[str, Any]:
    """Return the report of ``count`` inputs, or of the one with this ``number``."""
    workspace = make_workspace(folder / "inputs")
    scratch = folder / "scratch"
    scratch.mkdir()
    kinds = [kind for kind in kinds_over(workspace, scratch) if only in (None, kind.name)]
    _limit_memory()
    start, findings, by_kind = time.monotonic(), list[dict[str, Any]](), Counter[str]()
    sentences = 0
    for index in range(count) if number is None else [number]:
        rng = random.Random(f"{seed} {index}")
        kind = rng.choices(kinds, [kind.weight for kind in kinds])[0]
        by_kind[kind.name] += 1
        case = kind.case(rng)
        outcome = _run_case(case, scratch)
        sentences += outcome is None
        if isinstance(outcome, dict):
            findings.append({"number": index, "kind": kind.name, **outcome})
            if number is not None:
                print(outcome["traceback"])
    seconds = time.monotonic() - start
    command = f"python -m fuzz inputs --seed {seed} --number N"
    return {
        "inputs": sum(by_kind.values()),
        "by_kind": dict(sorted(by_kind.items())),
        "sentences": sentences,
        "num_findings": len(findings),
        "findings": _distinct(findings),
        "reproduce": command if only is None else f"{command} --only {only!r}",
        "seed": seed,
        "seconds": round(seconds, 1),
    }


def _run_case(case: Case, scratch: Path) -> dict[str, Any] | bool | None:
    """Return None for a UserError, True for a result, or a finding."""
    start, succeeded = time.process_time(), None
    try:
        case.run()
        succeeded = True
    except UserError as error:
        message = str(error)
        if "\n" in message or not 0 < len(message) <= MAX_SENTENCE_LENGTH:
            return _finding(case, "not one sentence", message[:300])
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return _finding(case, f"{type(error).__name__} at {_location(error)}", str(error)[:300])
    if (seconds := time.process_time() - start) > MAX_SECONDS:
        return _finding(case, "slow", f"{seconds:.0f} s")
    if succeeded is None and case.output is not None and case.output.exists():
        return _finding(case, "half-written", str(case.output))
    if leftovers := [path.name for path in scratch.rglob("*.unfinished-*")]:
        return _finding(case, "left behind", leftovers[0])
    return succeeded


def _finding(case: Case, problem: str, message: str) -> dict[str, Any]:
    return {
        "problem": problem,
        "message": ascii(message),
        "input": ascii(case.description[:400]),
        "traceback": traceback.format_exc(),
    }


def _location(error: BaseException) -> str:
    """Return the last line of bertwright in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = ([f for f in frames if "/bertwright/" in f.filename] or frames)[-1]
    return f"{frame.filename.rpartition('/bertwright/')[2]}:{frame.lineno}"


def _distinct(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first finding of every kind, with its count."""
    counts = Counter((f["kind"], f["problem"]) for f in findings)
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for finding in findings:
        data = {name: value for name, value in finding.items() if name != "traceback"}
        key = finding["kind"], finding["problem"]
        first.setdefault(key, {**data, "count": counts[key]})
    return list(first.values())[:MAX_FINDINGS]


def _limit_memory() -> None:
    """Limit the address space, so that excessive allocations fail."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
