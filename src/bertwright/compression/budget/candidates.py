"""Candidates: a model shape in a file format, and the formats themselves.

Size and speed are known before training, since they do not depend on the values of the weights.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Literal

from bertwright.compression.budget.goal import Goal
from bertwright.compression.budget.shapes import ModelShape, full_shape, untrained_model
from bertwright.compression.vocabulary.pruning import prune_vocabulary
from bertwright.core.files import atomic_folder
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.onnx.manifest import INT8_GRAPH_FILE
from bertwright.models.saving import WEIGHTS_FILE
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.provenance import examples_checksum, prediction_fingerprint
from bertwright.timing.artefact_worker import random_task_sequences

NUM_TIMED, NUM_WARMUP = 30, 5
"""Number of timed runs, and of untimed warm-up runs before them."""


@dataclass(frozen=True)
class ArtefactFormat:
    """A format: a model folder or an 8-bit ONNX folder, optionally with a pruned vocabulary.

    A pruned vocabulary contains only the tokens of the training examples.
    """

    kind: Literal["weights", "int8"] = "weights"
    prunes_vocabulary: bool = False

    @property
    def name(self) -> str:
        """The name of the format."""
        kind = "8 bits" if self.kind == "int8" else "weights"
        return f"{kind}, pruned vocabulary" if self.prunes_vocabulary else kind

    def write(self, model: FineTunedModel, examples: Examples, folder: Path) -> None:
        """Write a model; a pruned vocabulary keeps the tokens of ``examples``.

        Raises UserError if the vocabulary cannot be pruned or the model cannot be exported.
        """
        if self.prunes_vocabulary:
            pruned = prune_vocabulary(model, examples=examples)
            assert isinstance(pruned, FineTunedModel)
            model = pruned
        if self.kind == "int8":
            export_onnx(model, folder, int8=True, keep_float32=False)
        else:
            with atomic_folder(folder) as temporary:
                model.save(temporary)

    @property
    def with_full_vocabulary(self) -> "ArtefactFormat":
        """The same format with the full vocabulary."""
        return ArtefactFormat(self.kind)


WEIGHTS_FORMAT = ArtefactFormat()
"""The format that changes nothing."""

ARTEFACT_FORMATS = (
    WEIGHTS_FORMAT,
    ArtefactFormat("int8"),
    ArtefactFormat("weights", prunes_vocabulary=True),
    ArtefactFormat("int8", prunes_vocabulary=True),
)


def artefact_bytes(folder: Path) -> int:
    """Return the size in bytes of the file with the weights."""
    files = sorted(folder.glob(f"{INT8_GRAPH_FILE}*")) or [folder / WEIGHTS_FILE]
    return sum(file.stat().st_size for file in files)


@dataclass(frozen=True)
class BudgetCandidate:
    """A shape in a format, with its size and latency.

    ``milliseconds`` is None if the goal does not limit latency, or if the size already misses it.
    """

    shape: ModelShape
    format: ArtefactFormat
    num_bytes: int
    milliseconds: float | None

    @property
    def name(self) -> str:
        """The shape and the format, in words."""
        return f"{self.shape.name}, {self.format.name}"

    @property
    def cost(self) -> str:
        """The size and the latency, in words."""
        size = f"{self.num_bytes / 1e6:.4g} MB"
        return size if self.milliseconds is None else f"{size}, {self.milliseconds:.2f} ms"


class CandidatePool:
    """The candidates of a model for a goal, measured on first use.

    ``examples`` are the training examples. Candidates are stored in a folder within ``work`` and
    reused.
    """

    def __init__(
        self,
        model: FineTunedModel,
        goal: Goal,
        examples: Examples,
        work: Path,
        log: Callable[[str], None],
    ) -> None:
        self._model, self._full_shape = model, full_shape(model)
        self._goal, self._examples, self._log = goal, examples, log
        inputs = " ".join([*prediction_fingerprint(model), examples_checksum(examples)])
        self._folder = work / f"candidates-{sha256(inputs.encode()).hexdigest()[:12]}"
        self._candidates: dict[tuple[ModelShape, ArtefactFormat], BudgetCandidate] = {}
        self._milliseconds_by_format: dict[tuple[ModelShape, str], float] = {}

    @property
    def measured(self) -> list[BudgetCandidate]:
        """The measured candidates, in order."""
        return list(self._candidates.values())

    def measure(self, shape: ModelShape, format: ArtefactFormat) -> BudgetCandidate:
        """Return a candidate with this shape and format; raise UserError if it cannot be built."""
        if (shape, format) not in self._candidates:
            num_bytes, milliseconds = self._num_bytes(shape, format), None
            if self._goal.max_milliseconds is not None and self._goal.is_met(num_bytes, None):
                milliseconds = self._milliseconds(shape, format)
            candidate = BudgetCandidate(shape, format, num_bytes, milliseconds)
            self._log(f"{candidate.name}: {candidate.cost}")
            self._candidates[shape, format] = candidate
        return self._candidates[shape, format]

    def folder(self, shape: ModelShape, format: ArtefactFormat) -> Path:
        """Return the folder of an untrained candidate; it is written on first use."""
        tokens = "pruned" if format.prunes_vocabulary else "all"
        folder = self._folder / f"{shape.num_layers}-{shape.kept_fraction}-{format.kind}-{tokens}"
        if not folder.exists():
            format.write(untrained_model(self._model, shape), self._examples, folder)
        return folder

    # Latency, and what pruning saves, do not depend on shape and vocabulary together.

    def _num_bytes(self, shape: ModelShape, format: ArtefactFormat) -> int:
        if format.prunes_vocabulary and shape != self._full_shape:
            before, after = (
                self._num_bytes(self._full_shape, vocabulary)
                for vocabulary in (format.with_full_vocabulary, format)
            )
            return self._num_bytes(shape, format.with_full_vocabulary) - (before - after)
        return artefact_bytes(self.folder(shape, format))

    def _milliseconds(self, shape: ModelShape, format: ArtefactFormat) -> float:
        key = shape, format.kind
        if key not in self._milliseconds_by_format:
            folder = self.folder(shape, format.with_full_vocabulary)
            self._milliseconds_by_format[key] = measure_milliseconds(folder, self._goal)
        return self._milliseconds_by_format[key]


def measure_milliseconds(folder: Path, goal: Goal) -> float:
    """Return the median milliseconds of a forward pass on the goal's batch, for a model folder."""
    model = load(folder)
    assert isinstance(model, FineTunedModel)
    sequences = random_task_sequences(model, goal.batch_size, goal.sequence_length)
    seconds: list[float] = []
    for _ in range(NUM_WARMUP + NUM_TIMED):
        start = time.perf_counter()
        model.head_outputs(sequences)
        seconds.append(time.perf_counter() - start)
    return 1000 * median(seconds[NUM_WARMUP:])
