"""What acts inside the step: at most five moments, called in one fixed order.

Growth, replacement, pruning masks, fake quantisation, moving averages, memory between batches and
second networks are procedures. A procedure owns its state, which the checkpoint keeps, and its
schedules.
"""

from collections.abc import Mapping

from torch import Tensor

from bertwright.objectives.objective import Loss
from bertwright.training.clock import Place


class Procedure:
    """Does nothing at every moment; a procedure overrides those that it needs."""

    name: str = "procedure"

    parted: bool = False
    """Whether each process holds a part of the state, and not all of it."""

    def before_step(self, place: Place) -> None:
        """Before the batch of the step is drawn."""

    def after_losses(self, place: Place, losses: Mapping[str, Loss]) -> Mapping[str, Loss]:
        """After the losses of each micro-batch; returns those to be used in their place."""
        return losses

    def after_backward(self, place: Place) -> None:
        """After the gradient of the whole batch, before clipping."""

    def after_update(self, place: Place) -> None:
        """After the optimiser's step."""

    def at_evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        """After each evaluation."""

    def state(self) -> dict[str, Tensor]:
        """Named tensors that a checkpoint must keep."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state` gave."""
