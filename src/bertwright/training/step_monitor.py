"""Check and report the losses of each step; on a GPU a few steps late.

Reading a number from a GPU waits for it, so some steps run before their losses are checked.
Checkpoints are written only after pending steps have been checked.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_file
from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import Progress
from bertwright.training.process_group import ProcessGroup
from bertwright.training.step_batch import StepBatch


class NonFiniteError(UserError):
    """A loss or gradient became non-finite at ``step``."""

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return NonFiniteError, (str(self), self.step)  # pickled between processes


MAX_PENDING_STEPS = 10
"""Unchecked steps on a GPU."""


@dataclass(frozen=True)
class PendingStep:
    """A step whose losses are not checked yet.

    Attributes:
        sums: (num_losses + 1, 3), over all processes; loss sum, correct and total predictions per
            loss, in the order of ``batch.loss_counts``. The last row counts the processes that
            received a stop signal.
        gradient_norm: () before clipping.
        num_tokens: tokens since the start of the run.
        masking_rates: fraction of masked positions by masking objective.
    """

    progress: Progress
    batch: StepBatch[Any]
    learning_rate_factor: float
    loss_weights: Mapping[str, float]
    sums: Tensor
    gradient_norm: Tensor
    num_tokens: int
    masking_rates: Mapping[str, float] = field(default_factory=dict[str, float])


class StepMonitor:
    """Reports steps and stops a run with a non-finite loss or gradient.

    ``remedy`` is the advice in the error message.
    """

    def __init__(
        self,
        process_group: ProcessGroup,
        callbacks: Sequence[Callback],
        dump_folder: Path,
        remedy: str,
    ) -> None:
        self._process_group = process_group
        self._callbacks = callbacks
        self._dump_folder = dump_folder
        self._remedy = remedy
        self._pending: list[PendingStep] = []

    def add(self, pending: PendingStep) -> bool:
        """Add a step and report those that are due; return whether to stop."""
        self._pending.append(pending)
        on_gpu = self._process_group.device.type != "cpu"
        return False if on_gpu and len(self._pending) < MAX_PENDING_STEPS else self.flush()

    def flush(self) -> bool:
        """Report all pending steps; return whether to stop.

        Errors: NonFiniteError for a non-finite loss or gradient; the batch is saved.
        """
        steps, self._pending = self._pending, []
        stops = [self._report(step) for step in steps]  # all are reported, also after a stop
        return any(stops)

    def _report(self, pending: PendingStep) -> bool:
        *loss_rows, (num_stopping, _, _) = pending.sums.tolist()
        losses: dict[str, float] = {}
        accuracies: dict[str, float] = {}
        for name, (loss, num_correct, count) in zip(
            pending.batch.loss_counts, loss_rows, strict=True
        ):
            losses[name] = loss / (count or 1.0)
            accuracies[name] = num_correct / (count or 1.0)
        norm = float(pending.gradient_norm)
        bad = [name for name, loss in losses.items() if not math.isfinite(loss)]
        if bad or not math.isfinite(norm):
            subject = f"the loss of {bad[0]!r}" if bad else "the gradient"
            raise NonFiniteError(self._save_and_describe(pending, subject), pending.progress.step)
        total = sum(pending.loss_weights.get(name, 1.0) * loss for name, loss in losses.items())
        report = StepReport(
            pending.progress,
            total,
            losses,
            accuracies,
            pending.learning_rate_factor,
            norm,
            pending.num_tokens,
            pending.masking_rates,
        )
        for callback in self._callbacks:
            callback.report_step(report)
        return num_stopping > 0

    def _save_and_describe(self, pending: PendingStep, subject: str) -> str:
        name = f"not-finite-step-{pending.progress.step:08d}-process-{self._process_group.rank}"
        file, where = self._dump_folder / f"{name}.safetensors", ""
        with suppress(OSError, UserError):  # the cause is reported on a full disk, too
            self._dump_folder.mkdir(parents=True, exist_ok=True)
            save_nested_tensors(file, pending.batch)
            where = f" (the batch is saved as {file})"
        return f"{subject} is not finite at step {pending.progress.step}{where}: {self._remedy}"


def save_nested_tensors(file: Path, value: Any) -> None:
    """Save every array and number inside a nested value as safetensors, named by its path.

    Descends into dataclasses, objects with attributes, mappings and sequences.
    """
    tensors = dict(_named_tensors(value, ""))
    with atomic_file(file) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)


def _named_tensors(value: Any, path: str) -> list[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        return [(path, value.detach().cpu().clone())]
    if isinstance(value, np.ndarray | int | float):
        return [(path, torch.from_numpy(np.array(value)))]
    return [
        named_tensor
        for name, child in _named_children(value)
        for named_tensor in _named_tensors(child, f"{path}{'.' if path else ''}{name}")
    ]


def _named_children(value: Any) -> list[tuple[str, Any]]:
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return [(str(name), child) for name, child in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(str(index), child) for index, child in enumerate(value)]
    return list(getattr(value, "__dict__", {}).items())
