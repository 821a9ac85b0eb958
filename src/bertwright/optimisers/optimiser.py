"""The optimiser axis, and the interface of an optimiser.

An optimiser updates the flat buffers of
:class:`~bertwright.optimisers.master_parameters.MasterParameters` in place. Values that change from
step to step are passed as tensors, so that an update is compiled only once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from pydantic import Field
from torch import Tensor

from bertwright.core.config import Config
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.tensor_parts import copy_into
from bertwright.runtime.compiled_functions import CompilableFunction


class Optimiser(ABC):
    """An optimiser with its state."""

    @abstractmethod
    def step(self, gradient: Tensor, lr_factor: float, clip_factor: Tensor) -> None:
        """Update the parameters in place.

        Args:
            gradient: (T,) the gradient of the step, float32 or bf16.
            lr_factor: factor of every learning rate at this step, from the schedule.
            clip_factor: 0-d float32, factor of the gradient.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Return the named tensors of a checkpoint, as views."""

    def compilable_functions(self) -> Sequence[CompilableFunction[..., None]]:
        """Return the functions of a step that are worth compiling, if any."""
        return [part for part in vars(self).values() if isinstance(part, CompilableFunction)]

    def compile(self) -> None:
        """Compile the functions of a step; later steps use the compiled form."""
        for part in self.compilable_functions():
            part.compile()

    def reset(self) -> None:
        """Reset the state to its initial values."""
        for moment in self.state_dict().values():
            moment.zero_()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the state from :meth:`state_dict`."""
        copy_into(self.state_dict(), state)


class OptimiserConfig(Config):
    """Settings of an optimiser.

    The heads have the full learning rate, and ``layer_decay`` multiplies it for each level below
    them, down to the embeddings (Howard and Ruder 2018, section 3.2: 1 / 2.6 for each level).
    """

    layer_decay: float = Field(default=1.0, gt=0.0, le=1.0)

    def build(self, parameters: MasterParameters) -> Optimiser:
        """Return an optimiser for these parameters, in its initial state."""
        raise TypeError(f"{type(self).__name__} is an axis, not an optimiser")
