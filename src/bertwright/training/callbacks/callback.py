"""The base class of callbacks, called by the training loop in a fixed order.

Progressive stacking, pruning masks, fake quantisation, moving averages, segment memory and progress
reports are callbacks. Each callback owns its schedules and its state; checkpoints store the state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from bertwright.training.clock import Progress


@dataclass(frozen=True)
class StepReport:
    """The metrics of one step, over all processes.

    Attributes:
        loss: weighted sum of the losses.
        losses: losses by name, in nats per target.
        accuracies: fraction of correct predictions, by loss.
        learning_rate_factor: multiplier of the learning rates.
        gradient_norm: norm before clipping.
        num_tokens: tokens without padding since the start of the run, including this step.
        masking_rates: fraction of masked tokens, by masking objective.
    """

    progress: Progress
    loss: float
    losses: Mapping[str, float]
    accuracies: Mapping[str, float]
    learning_rate_factor: float
    gradient_norm: float
    num_tokens: int
    masking_rates: Mapping[str, float] = field(default_factory=dict[str, float])


def metric_name(objective: str) -> str:
    """Return the prefix of an objective's metric names: ``next_sentence`` for ``next-sentence``."""
    return objective.replace("-", "_")


class Callback:
    """A callback that does nothing; subclasses override the methods they need."""

    name: str = ""
    """Name under which checkpoints store the state; empty for a callback without state."""

    is_sharded: bool = False
    """Whether each process holds only a part of the state."""

    def before_step(self, progress: Progress) -> None:
        """Act before the batch of the step is drawn."""

    def after_update(self, progress: Progress) -> None:
        """Act after the optimiser step."""

    def report_step(self, report: StepReport) -> None:
        """Act on the metrics of a step; steps arrive in order, on a GPU a few steps late."""

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Act after an evaluation."""

    def before_checkpoint(self) -> None:
        """Act before a checkpoint, when all steps until then are reported."""

    def close(self) -> None:
        """Clean up when training ends, even after an error."""

    def state(self) -> dict[str, Tensor]:
        """Return the named tensors to keep in a checkpoint."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors returned by :meth:`state`."""
