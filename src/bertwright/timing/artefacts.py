"""Score, size and latency of several artefacts of one task, relative to the first.

Each artefact is scored as it is timed: loaded from its folder, in its precision. Timing runs in
separate, interleaved processes on sequences of one length. It covers encoder and head, but not
tokenization.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np

from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.core.rng import stream_key
from bertwright.data.hub.download import local_folder
from bertwright.data.hub.reference import HubReference
from bertwright.interop.loading import load
from bertwright.interop.onnx.manifest import GRAPH_FILE, INT8_GRAPH_FILE
from bertwright.recipes.loading import imported_plugins
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.task import Task
from bertwright.timing.interleaved import time_processes

ARTEFACT_COLUMNS = {
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
"""Column titles by key."""

TIMED_SHAPES = ((1, 32, 40), (1, 128, 20), (32, 128, 2))
"""Batch size, sequence length, and batches per round."""

NUM_RESAMPLES = 2000
"""Number of bootstrap resamples of the rounds."""

WEIGHT_FILES = (INT8_GRAPH_FILE, GRAPH_FILE, "model.safetensors")
"""Names of weight files; the first that exists is used."""


@dataclass(frozen=True)
class Artefact:
    """A model folder with a precision; None is the default precision."""

    folder: Path
    precision: InferencePrecision | None = None

    @staticmethod
    def parse(text: str) -> "Artefact":
        """Parse ``FOLDER`` or ``FOLDER@PRECISION``; raise UserError for an unknown precision.

        The folder may be a name on the Hub, also with a revision.
        """
        if Path(text).is_dir() or "@" not in text:
            return Artefact(Path(text))
        folder, _, precision = text.rpartition("@")
        for name in get_args(InferencePrecision):
            if precision == name:
                return Artefact(Path(folder), name)
        if HubReference.parse(text) is not None:
            return Artefact(Path(text))
        raise UserError(
            f"{text}: no precision {precision!r}: choose from "
            f"{', '.join(get_args(InferencePrecision))}"
        )

    def label(self, artefacts: Sequence["Artefact"]) -> str:
        """Return the name in tables: the last part of the path, or the path if not unique."""
        folders = {str(a.folder) for a in artefacts if a.folder.name == self.folder.name}
        label = self.folder.name if len(folders) == 1 else str(self.folder)
        return label + (f", {self.precision}" if self.precision else "")

    @property
    def num_bytes(self) -> int:
        """The size of the weights, with external data files."""
        names = WEIGHT_FILES[1:] if self.precision == "float32" else WEIGHT_FILES
        folder = local_folder(self.folder)
        name = next(n for n in names if (folder / n).is_file())
        return sum(file.stat().st_size for file in folder.glob(f"{name}*"))


def compare_artefacts(
    artefacts: Sequence[Artefact],
    data: Path,
    num_rounds: int,
    threads: int | None,
    say: Callable[[str], None],
    shapes: Sequence[tuple[int, int, int]] = TIMED_SHAPES,
) -> list[dict[str, Any]]:
    """Compare artefacts; return a row for each, with the keys of ``ARTEFACT_COLUMNS``.

    Raises UserError, before anything is scored, for a folder without a fine-tuned model, for
    different tasks, for duplicates, and for sequences longer than a model's maximum length.
    """
    _require_same_task(artefacts, max((length for _, length, _ in shapes), default=0))
    names = [artefact.label(artefacts) for artefact in artefacts]
    lines: list[dict[str, Any]] = []
    for name, artefact in zip(names, artefacts, strict=True):
        scored = evaluate(_load_artefact(artefact), data)
        line = {"artefact": name, "bytes": artefact.num_bytes}
        lines.append(line | {key: scored[key] for key in ("task", "metric", "score")})
        say(f"{name}: {scored['metric']} {scored['score']:.4f}")
    for line in lines:
        line["lost"] = 100 * (lines[0]["score"] - line["score"])
        line["megabytes"] = line["bytes"] / 1e6
        line["smaller"] = lines[0]["bytes"] / line["bytes"]
    for batch, length, steps in shapes:
        shape = f"{batch}x{length}"
        settings = {"batch_size": batch, "max_length": length, "threads": threads}
        seconds = interleaved_seconds(artefacts, settings, steps, num_rounds)
        for line, times in zip(lines, seconds, strict=True):
            line[f"ms_{shape}"] = 1000 * median(times)
            line[f"faster_{shape}"] = median(seconds[0]) / median(times)
            line[f"interval_{shape}"] = ratio_interval(seconds[0], times)
        say(f"{shape}: " + ", ".join(f"{1000 * median(times):.2f} ms" for times in seconds))
    return lines


def _require_same_task(artefacts: Sequence[Artefact], sequence_length: int) -> None:
    """Raise UserError for different tasks, duplicates, or models with a shorter maximum length."""
    base = ""
    for index, artefact in enumerate(artefacts):
        if artefact in artefacts[:index]:
            raise UserError(f"{artefact.folder} is named twice: leave one out")
        model = _load_artefact(artefact)
        task = _describe_task(model.task)
        if task != (base := base or task):
            raise UserError(
                f"{artefact.folder} is a model of {task}, {artefacts[0].folder} of {base}: compare "
                f"models of one task"
            )
        max_length = model.task_model.encoder.max_length
        if max_length is not None and max_length < sequence_length:
            raise UserError(
                f"{artefact.folder} reads sequences of at most {max_length} tokens, and timing "
                f"uses {sequence_length}: leave it out"
            )


def _load_artefact(artefact: Artefact) -> FineTunedModel:
    model = load(artefact.folder, artefact.precision)
    if not isinstance(model, FineTunedModel):
        raise UserError(f"{artefact.folder} is not fine-tuned for a task: run finetune first")
    return model


def ratio_interval(
    base: Sequence[float], other: Sequence[float], level: float = 0.95
) -> tuple[float, float]:
    """Return a bootstrap interval of the ratio of two medians, resampled over rounds."""
    rng = np.random.default_rng(stream_key(0, "ratio of medians"))
    indices = rng.integers(0, len(base), (NUM_RESAMPLES, len(base)))
    firsts, seconds = (np.median(np.asarray(v)[indices], axis=1) for v in (base, other))
    low, high = np.quantile(firsts / seconds, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def interleaved_seconds(
    artefacts: Sequence[Artefact], shape: Mapping[str, Any], num_steps: int, num_rounds: int
) -> list[list[float]]:
    """Return the seconds per batch of each artefact, by round, after a warm-up round."""
    plugins = [str(path) for path in imported_plugins()]
    settings = [
        {"folder": str(a.folder), "precision": a.precision, "plugins": plugins, **shape}
        for a in artefacts
    ]
    programs = [("bertwright.timing.artefact_worker", options) for options in settings]
    return time_processes(programs, num_steps, num_rounds)


def _describe_task(task: Task) -> str:
    """Describe a task by its name, labels and metric."""
    labels = f" with {', '.join(task.labels)}" if task.labels else ""
    return f"task {task.name}{labels} by {task.metrics[0]}"
