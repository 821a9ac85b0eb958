"""Looking at the numbers of the steps: after each one on a CPU, some steps late on a card.

Reading a number from a card waits for it, so there a few steps are under way before their losses
are looked at. Nothing is written to a checkpoint before it was looked at.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from bertwright.errors import UserError
from bertwright.training.batch_source import StepBatch
from bertwright.training.clock import Place
from bertwright.training.distributed import Processes
from bertwright.training.offending import save_arrays
from bertwright.training.reporting import Reporter, StepReport


class NotFinite(UserError):
    """A loss or a gradient is no finite number any more, in this ``step``."""

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return NotFinite, (str(self), self.step)  # as it comes from another process


MOST_PENDING = 10
"""Steps under way on a card."""


@dataclass(frozen=True)
class Pending:
    """A step whose numbers were not looked at yet.

    ``sums`` (questions + 1, 3) holds for every question, in the order of the counts of the batch,
    the sum of the losses, how many were right, and how many there were, over all processes; in
    its last row how many processes were asked to stop. ``norm`` () is that of the gradient;
    ``tokens`` counts from the beginning of the run; ``hidden`` is the share of the tokens of the
    step that a question hides.
    """

    place: Place
    batch: StepBatch[Any]
    rate: float
    weights: Mapping[str, float]
    sums: Tensor
    norm: Tensor
    tokens: int
    hidden: Mapping[str, float] = field(default_factory=dict[str, float])


class StepWatch:
    """Reports the steps and stops a run whose loss or gradient is not finite; ``remedy`` is what
    its user is told to do then."""

    def __init__(self, processes: Processes, reporter: Reporter, folder: Path, remedy: str) -> None:
        self._processes = processes
        self._reporter = reporter
        self._folder = folder
        self._remedy = remedy
        self._pending: list[Pending] = []

    def add(self, pending: Pending) -> bool:
        """Note a step, and look at what is due; returns as :meth:`look` does."""
        self._pending.append(pending)
        on_card = self._processes.device.type != "cpu"
        return False if on_card and len(self._pending) < MOST_PENDING else self.look()

    def look(self) -> bool:
        """Report every step that was noted; returns whether to stop.

        Errors: NotFinite for a number that is none; the batch of that step is saved.
        """
        pending, self._pending = self._pending, []
        stopping = [self._report(each) for each in pending]
        return any(stopping)

    def _report(self, pending: Pending) -> bool:
        *questions, (num_stopping, _, _) = pending.sums.tolist()
        losses: dict[str, float] = {}
        accuracies: dict[str, float] = {}
        for name, (loss, right, count) in zip(pending.batch.counts, questions, strict=True):
            losses[name] = loss / (count or 1.0)
            accuracies[name] = right / (count or 1.0)
        norm = float(pending.norm)
        odd = [name for name, loss in losses.items() if not math.isfinite(loss)]
        if odd or not math.isfinite(norm):
            what = f"the loss of {odd[0]!r}" if odd else "the gradient"
            raise NotFinite(self._stopped(pending, what), pending.place.step)
        total = sum(pending.weights.get(name, 1.0) * loss for name, loss in losses.items())
        self._reporter.step(
            StepReport(
                pending.place,
                total,
                losses,
                accuracies,
                pending.rate,
                norm,
                pending.tokens,
                pending.hidden,
            )
        )
        return num_stopping > 0

    def _stopped(self, pending: Pending, what: str) -> str:
        name = f"not-finite-step-{pending.place.step:08d}-process-{self._processes.rank}"
        file = self._folder / f"{name}.safetensors"
        self._folder.mkdir(parents=True, exist_ok=True)
        save_arrays(file, pending.batch)
        return (
            f"{what} is not finite at step {pending.place.step} (its batch is saved as {file}): "
            f"{self._remedy}"
        )
