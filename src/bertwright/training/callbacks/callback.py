"""The base class of callbacks, called by the training loop in a fixed order.

Progressive stacking, pruning masks, fake quantisation, moving averages and memory between batches
are callbacks. A callback owns its schedules and its state, which checkpoints keep.
"""

from collections.abc import Mapping

from torch import Tensor

from bertwright.training.clock import Progress


class Callback:
    """A callback that does nothing; subclasses override the methods they need."""

    name: str = "callback"

    is_sharded: bool = False
    """Whether each process holds only a part of the state."""

    def before_step(self, progress: Progress) -> None:
        """Act before the batch of the step is drawn."""

    def after_update(self, progress: Progress) -> None:
        """Act after the optimiser step."""

    def state(self) -> dict[str, Tensor]:
        """Return the named tensors to keep in a checkpoint."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors returned by :meth:`state`."""
