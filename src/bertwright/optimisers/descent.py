"""Gradient descent that keeps one number per parameter: SGD and Adagrad."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.optimisers.adam import DECAYED
from bertwright.optimisers.optimiser import Optimiser, Update
from bertwright.optimisers.parameters import MasterParameters

FLOOR = 1e-10
"""Added to what Adagrad divides by, so that a parameter that never had a gradient stays."""


class Descent(Optimiser):
    """What the two have in common. ``decay`` x weight is part of the gradient of matrices and
    tables. A step is one or two passes, which are not compiled."""

    rate: float = Field(default=0.1, gt=0)
    decay: float = Field(default=0.0, ge=0)

    def build(self, parameters: MasterParameters) -> "DescentUpdate":
        return DescentUpdate(self, parameters, self.first())

    def first(self) -> float:
        """The number that is kept, before the first step."""
        return 0.0

    def change(self, gradient: Tensor, kept: Tensor) -> Tensor:
        """What is taken off the parameters, per unit of the rate; updates what is kept, in
        place."""
        raise TypeError(f"{type(self).__name__} is no optimiser by itself")


class Sgd(Descent):
    """Stochastic gradient descent, with momentum where it is more than 0."""

    kind: Literal["sgd"] = "sgd"
    momentum: float = Field(default=0.0, ge=0, lt=1)

    def change(self, gradient: Tensor, kept: Tensor) -> Tensor:
        return kept.mul_(self.momentum).add_(gradient)


class Adagrad(Descent):
    """Every step is divided by the root of the sum of all squared gradients so far, which begins at
    ``start`` (Duchi et al. 2011)."""

    kind: Literal["adagrad"] = "adagrad"
    start: float = Field(default=0.1, ge=0)

    def first(self) -> float:
        return self.start

    def change(self, gradient: Tensor, kept: Tensor) -> Tensor:
        kept.addcmul_(gradient, gradient)
        return gradient / (kept.sqrt() + FLOOR)


class DescentUpdate(Update):
    """One number per parameter."""

    def __init__(self, settings: Descent, parameters: MasterParameters, first: float) -> None:
        self._settings, self._parameters, self._first = settings, parameters, first
        device = parameters.master.device
        self._kept = torch.full((parameters.num_trainable,), first, device=device)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float, clip: Tensor) -> None:
        settings, parameters = self._settings, self._parameters
        for group, decay in ((DECAYED, settings.decay), (("rest",), 0.0)):
            for where, factor in parameters.trained(parameters.range(*group), settings.layer_decay):
                master = parameters.master[where]
                whole = gradient[where].float() * clip + decay * master
                change = settings.change(whole, self._kept[where])
                master.sub_(change, alpha=settings.rate * rate * factor)
                parameters.refresh(where)

    def reset(self) -> None:
        self._kept.fill_(self._first)

    def state(self) -> dict[str, Tensor]:
        views = self._parameters.views(self._kept)
        return {f"kept.{parameter}": view for parameter, view in views.items()}
