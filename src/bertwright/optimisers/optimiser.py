"""The axis of optimisers, and what one is once it is built.

An optimiser runs in place over the flat buffers of
:class:`~bertwright.optimisers.parameters.MasterParameters`. Everything that changes from step to
step reaches it as a tensor, so that a compiled update is compiled once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from pydantic import Field
from torch import Tensor

from bertwright.axes import Choice
from bertwright.machine.compiled import Compilable
from bertwright.optimisers.parameters import MasterParameters, fill


class Update(ABC):
    """An optimiser with its state."""

    @abstractmethod
    def step(self, gradient: Tensor, rate: float, clip: Tensor) -> None:
        """Update the parameters in place.

        Args:
            gradient: (T,) the gradient of the step, float32 or bf16.
            rate: what the schedule multiplies every learning rate with at this step.
            clip: 0-d float32, what the gradient is multiplied with.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Named tensors that a checkpoint must keep, as views."""

    def compilables(self) -> Sequence[Compilable[..., None]]:
        """Return the passes of a step that repay compiling; by default there are none."""
        return ()

    def compile(self) -> None:
        """Fuse the passes of a step from now on."""
        for part in self.compilables():
            part.compile()

    def reset(self) -> None:
        """Begin anew."""
        for moment in self.state().values():
            moment.zero_()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state` gave."""
        fill(self.state(), state)


class Optimiser(Choice):
    """How a gradient changes the parameters.

    ``layer_decay`` is what learning rates are multiplied with from level to level, down from the
    heads: theirs is the whole rate, that of the last block once this share of it, that of the
    embeddings the least (Howard and Ruder 2018, section 3.2: 1 / 2.6 for each level).
    """

    layer_decay: float = Field(default=1.0, gt=0.0, le=1.0)

    def build(self, parameters: MasterParameters) -> Update:
        """Return the optimiser over these parameters, with fresh state."""
        raise TypeError(f"{type(self).__name__} is an axis, not an optimiser")
