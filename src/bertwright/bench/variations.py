"""Training steps and embedding of two variations of this program, in turns: of another checkout, or
with other flags for the compiler.

A variation is an environment: it runs the same workload in a process of its own, with a cache of
compiled code of its own.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.bench.embedding import checkpoint_folder, choose_sentences, lines_of
from bertwright.bench.turns import Contestant, in_turns
from bertwright.bench.workload import Workload
from bertwright.errors import UserError
from bertwright.machine.process import usual_device

EMBEDDING_CHILD = Path(__file__).with_name("embedding_steps.py")
SENTENCES = 500
"""Embedded in a step."""

COLUMNS = {
    "what": "what",
    "variation": "variation",
    "milliseconds": "ms a step",
    "speed": "times as fast as the first",
}
"""What a document shows, by key."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Variation:
    """A way to run the program, as environment variables."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def of_checkouts(before: Path) -> list[Variation]:
    """Return another checkout, which is the first, and this one."""
    return [Variation("before", of_checkout(before)), Variation("now")]


def of_checkout(folder: Path) -> dict[str, str]:
    """Return the environment variables with which Python imports another checkout.

    Errors: UserError for a folder that is none, where this checkout would be imported instead.
    """
    source = folder.resolve() / "src"
    if not (source / "bertwright").is_dir():
        raise UserError(f"{folder} is no checkout of bertwright: it has no src/bertwright")
    return {"PYTHONPATH": str(source)}


def of_flags() -> list[Variation]:
    """Return PyTorch's own choice of compiler flags, which is the first, and ours."""
    return [
        Variation("-march=native", {"TORCHINDUCTOR_CPP_MARCH": "native"}),
        Variation("as it is"),
    ]


def compare(
    variations: Sequence[Variation], sizes: Sequence[str], embed: bool, rounds: int, say: Say
) -> list[dict[str, Any]]:
    """Return a row for every workload and variation; speeds are medians of ratios within a round.

    ``sizes`` are those of BERT that is trained; ``embed`` adds sentences embedded by MiniLM.
    """
    device = usual_device().type
    rows: list[dict[str, Any]] = []
    for size in sizes:
        settings = {"device": device, "workload": asdict(Workload(size))}
        steps = _in_turns(variations, "bertwright.bench.ours", settings, rounds, say)
        rows += _rows(f"pretrain {size}", steps)
    if embed:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(choose_sentences(lines_of(None), SENTENCES), file)
            file.flush()
            settings = {"model": str(checkpoint_folder()), "sentences": file.name}
            steps = _in_turns(variations, EMBEDDING_CHILD, settings, rounds, say)
        rows += _rows(f"embed {SENTENCES} sentences", steps)
    return rows


def _in_turns(
    variations: Sequence[Variation],
    program: str | Path,
    settings: Mapping[str, Any],
    rounds: int,
    say: Say,
) -> dict[str, list[float]]:
    """Return the seconds of a step in every round, by variation."""
    seconds: dict[str, list[float]] = {variation.name: [] for variation in variations}
    with ExitStack() as running:
        contestants: dict[str, Contestant] = {}
        for variation in variations:
            caches = running.enter_context(tempfile.TemporaryDirectory())
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": caches, **variation.variables}
            contestant = running.enter_context(Contestant(program, settings, environment))
            # The first step compiles: it says nothing about how many fill a turn.
            contestant.seconds_per_step(1)
            contestants[variation.name] = contestant
        for turns in in_turns(contestants, rounds, say):
            for name, step_seconds in turns.items():
                seconds[name].append(step_seconds)
    return seconds


def _rows(what: str, seconds: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    first = next(iter(seconds.values()))
    return [
        {
            "what": what,
            "variation": name,
            "milliseconds": 1e3 * median(turns),
            "speed": median(a / b for a, b in zip(first, turns, strict=True)),
        }
        for name, turns in seconds.items()
    ]
