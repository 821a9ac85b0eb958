"""Scores, bytes and milliseconds of several artefacts of one task, the first of which is the base.

Each is scored as it is timed: from its folder, in its precision. They are timed in processes of
their own that take turns, on rows of one length: encoder and head, without reading texts.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np

from bertwright.axes import ReadingPrecision
from bertwright.bench.turns import Contestant
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.randomness import key
from bertwright.recipes.loading import imported_plugins
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.task import Task

COLUMNS = {
    "artefact": "artefact",
    "score": "score",
    "lost": "lost, points",
    "megabytes": "MB",
    "smaller": "times smaller",
    "ms_1x32": "ms at 1x32",
    "faster_1x32": "times faster",
    "ms_1x128": "ms at 1x128",
    "faster_1x128": "times faster ",
    "ms_32x128": "ms at 32x128",
    "faster_32x128": "times faster  ",
}
"""What a document shows, by key."""

SHAPES = ((1, 32, 40), (1, 128, 20), (32, 128, 2))
"""Rows, their length, and how many answers a turn has."""

DRAWS = 2000
"""Of the rounds, for an interval."""

WEIGHTS = ("model.int8.onnx", "model.onnx", "model.safetensors")
"""The files of which the first that a folder has is what is computed with."""


@dataclass(frozen=True)
class Artefact:
    """A folder in a precision, None for the usual one."""

    folder: Path
    precision: ReadingPrecision | None = None

    @staticmethod
    def of(said: str) -> "Artefact":
        """What ``FOLDER`` or ``FOLDER@float32`` names; UserError for a precision that is none."""
        if Path(said).is_dir() or "@" not in said:
            return Artefact(Path(said))
        folder, _, precision = said.rpartition("@")
        for known in get_args(ReadingPrecision):
            if precision == known:
                return Artefact(Path(folder), known)
        raise UserError(
            f"{said}: behind the @ of a folder stands {', '.join(get_args(ReadingPrecision))}"
        )

    def name(self, among: Sequence["Artefact"]) -> str:
        """What tables call it: the last part of its path, or all of it where folders among others
        have that in common."""
        alike = {str(own.folder) for own in among if own.folder.name == self.folder.name}
        said = self.folder.name if len(alike) == 1 else str(self.folder)
        return said + (f", {self.precision}" if self.precision else "")

    @property
    def bytes(self) -> int:
        """Of the file that is computed with, and of what lies beside it where it is large."""
        names = WEIGHTS[1:] if self.precision == "float32" else WEIGHTS
        name = next(n for n in names if (self.folder / n).is_file())
        return sum(file.stat().st_size for file in self.folder.glob(f"{name}*"))


def compare(
    artefacts: Sequence[Artefact],
    data: Path,
    rounds: int,
    threads: int | None,
    say: Callable[[str], None],
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
) -> list[dict[str, Any]]:
    """A line for each, by the keys of ``COLUMNS``; UserError for a folder of no fine-tuned model,
    for one of another task than the first, for one that is named twice, and for rows that one of
    them does not read, before any of them is scored."""
    _require_alike(artefacts, max((length for _, length, _ in shapes), default=0))
    names = [artefact.name(artefacts) for artefact in artefacts]
    found: list[dict[str, Any]] = []
    for name, artefact in zip(names, artefacts, strict=True):
        scored = evaluate(_opened(artefact), data)
        line = {"artefact": name, "bytes": artefact.bytes}
        found.append(line | {key: scored[key] for key in ("task", "metric", "score")})
        say(f"{name}: {scored['metric']} {scored['score']:.4f}")
    for line in found:
        line["lost"] = 100 * (found[0]["score"] - line["score"])
        line["megabytes"] = line["bytes"] / 1e6
        line["smaller"] = found[0]["bytes"] / line["bytes"]
    for batch, length, steps in shapes:
        shape, given = f"{batch}x{length}", {"batch": batch, "length": length, "threads": threads}
        times = seconds_in_turns(artefacts, given, steps, rounds)
        for line, own in zip(found, times, strict=True):
            line[f"ms_{shape}"] = 1000 * median(own)
            line[f"faster_{shape}"] = median(times[0]) / median(own)
            line[f"interval_{shape}"] = ratio_interval(times[0], own)
        say(f"{shape}: " + ", ".join(f"{1000 * median(own):.2f} ms" for own in times))
    return found


def _require_alike(artefacts: Sequence[Artefact], length: int) -> None:
    """Errors: UserError where they are not of one task, one is named twice, or does not read rows
    of this length."""
    base = ""
    for number, artefact in enumerate(artefacts):
        if artefact in artefacts[:number]:
            raise UserError(f"{artefact.folder} is named twice: leave one out")
        model = _opened(artefact)
        told = _told(model.task)
        if told != (base := base or told):
            raise UserError(
                f"{artefact.folder} answers {told}, {artefacts[0].folder} {base}: compare models "
                f"of one task"
            )
        longest = model.net.encoder.longest
        if longest is not None and longest < length:
            raise UserError(
                f"{artefact.folder} reads rows of {longest} pieces at most, and rows of {length} "
                f"are timed: leave it out"
            )


def _opened(artefact: Artefact) -> FineTuned:
    model = load(artefact.folder, artefact.precision)
    if not isinstance(model, FineTuned):
        raise UserError(f"{artefact.folder} is not fine-tuned for a task: run finetune first")
    return model


def ratio_interval(
    base: Sequence[float], other: Sequence[float], level: float = 0.95
) -> tuple[float, float]:
    """Of the ratio of two medians, from rounds drawn again and again."""
    draw = np.random.default_rng(key(0, "ratio of medians"))
    which = draw.integers(0, len(base), (DRAWS, len(base)))
    firsts, seconds = (np.median(np.asarray(each)[which], axis=1) for each in (base, other))
    low, high = np.quantile(firsts / seconds, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def seconds_in_turns(
    artefacts: Sequence[Artefact], given: Mapping[str, Any], steps: int, rounds: int
) -> list[list[float]]:
    """Seconds of one answer, by round, of each; the first round warms up."""
    plugins = [str(path) for path in imported_plugins()]
    with ExitStack() as stack:
        contestants = [
            stack.enter_context(
                Contestant(
                    "bertwright.bench.artefacts.answering",
                    {
                        "folder": str(own.folder),
                        "precision": own.precision,
                        "plugins": plugins,
                        **given,
                    },
                    dict(os.environ),
                )
            )
            for own in artefacts
        ]
        turns = [[each.seconds_per_step(steps) for each in contestants] for _ in range(rounds + 1)]
    return [list(own) for own in zip(*turns[1:], strict=True)]


def _told(task: Task) -> str:
    """What is asked, in words."""
    labels = f" with {', '.join(task.labels)}" if task.labels else ""
    return f"task {task.name}{labels} by {task.metrics[0]}"
