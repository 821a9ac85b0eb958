"""Gradient descent with one accumulator per parameter: SGD and Adagrad."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.optimisers.adam import DECAY_GROUPS
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser, OptimiserConfig

EPSILON = 1e-10
"""Constant that is added to Adagrad's divisor, so that a zero gradient changes nothing."""


class GradientDescentConfig(OptimiserConfig):
    """A base class; weight_decay x weight is added to the gradient of matrices and tables.

    A step is one or two passes, which are not compiled.
    """

    learning_rate: float = Field(default=0.1, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)

    def build(self, parameters: MasterParameters) -> "GradientDescentOptimiser":
        return GradientDescentOptimiser(self, parameters)

    @property
    def initial_accumulator(self) -> float:
        """Return the value of the accumulator before the first step."""
        return 0.0

    def compute_change(self, gradient: Tensor, accumulator: Tensor) -> Tensor:
        """Return the change per unit of learning rate, and update the accumulator in place."""
        raise TypeError(f"{type(self).__name__} is a base class, not an optimiser")


class SGDConfig(GradientDescentConfig):
    """Stochastic gradient descent, with optional momentum."""

    kind: Literal["sgd"] = "sgd"
    momentum: float = Field(default=0.0, ge=0, lt=1)

    def compute_change(self, gradient: Tensor, accumulator: Tensor) -> Tensor:
        return accumulator.mul_(self.momentum).add_(gradient)


class AdagradConfig(GradientDescentConfig):
    """Adagrad: steps divided by the root of the sum of squared gradients (Duchi et al. 2011).

    The sum is initialised to ``start``.
    """

    kind: Literal["adagrad"] = "adagrad"
    start: float = Field(default=0.1, ge=0)

    @property
    def initial_accumulator(self) -> float:
        return self.start

    def compute_change(self, gradient: Tensor, accumulator: Tensor) -> Tensor:
        accumulator.addcmul_(gradient, gradient)
        return gradient / (accumulator.sqrt() + EPSILON)


class GradientDescentOptimiser(Optimiser):
    """SGD or Adagrad; the state is one accumulator per parameter."""

    def __init__(self, config: GradientDescentConfig, parameters: MasterParameters) -> None:
        self._config, self._parameters = config, parameters
        self._accumulator = torch.empty(parameters.num_trainable, device=parameters.master.device)
        self.reset()

    @torch.no_grad()
    def step(self, gradient: Tensor, lr_factor: float, clip_factor: Tensor) -> None:
        settings, parameters = self._config, self._parameters
        for group, decay in ((DECAY_GROUPS, settings.weight_decay), (("rest",), 0.0)):
            for elements, factor in parameters.trained_ranges(
                parameters.range(*group), settings.layer_decay
            ):
                master = parameters.master[elements]
                total_gradient = gradient[elements].float() * clip_factor + decay * master
                change = settings.compute_change(total_gradient, self._accumulator[elements])
                master.sub_(change, alpha=settings.learning_rate * lr_factor * factor)
                parameters.refresh_compute(elements)

    def reset(self) -> None:
        self._accumulator.fill_(self._config.initial_accumulator)

    def state_dict(self) -> dict[str, Tensor]:
        return self._parameters.state_views({"kept": self._accumulator})
