"""States in standard form: what a new head learns on where the encoder stays as it is.

States lie far from the origin, and further in some directions than in others: in a small pre-norm
encoder three quarters of their energy are the same in every place. A head that is drawn for numbers
around 0 with deviation 1 learns slowly on those. What it learns on standard states becomes plain
weights over the states as they are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_SPREAD = 1e-2
"""Of the median: what hardly moves is not blown up."""

Maps = Sequence[tuple[Tensor, Tensor]]
"""The weight (O, W) and the bias (O,) of each linear map that reads the states, side by side."""


@dataclass(frozen=True)
class Standard:
    """What is taken from states, and what the rest is divided by: (W,) float32 each."""

    centre: Tensor
    spread: Tensor

    @staticmethod
    def of(states: Iterable[Tensor]) -> "Standard":
        """The one that gives all these states (k, W) mean 0 and deviation 1."""
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for some in states:
            wide = some.double()
            count += len(wide)
            total, squares = total + wide.sum(0), squares + wide.square().sum(0)
        centre = total / count
        spread = (squares / count - centre.square()).clamp(min=0).sqrt()
        least = LEAST_SPREAD * spread.median().clamp(min=torch.finfo(torch.float32).tiny)
        return Standard(centre.float(), spread.clamp(min=least).float())

    def to(self, device: torch.device) -> "Standard":
        """Return the same on a device."""
        return Standard(self.centre.to(device), self.spread.to(device))

    def __call__(self, states: Tensor) -> Tensor:
        """(M, W) to the same in standard form, of the same dtype."""
        return ((states.float() - self.centre) / self.spread).to(states.dtype)

    @torch.no_grad()
    def fold_into(self, maps: Maps) -> None:
        """Let maps that learned on standard states read them as they are."""
        for weight, bias in maps:
            weight.div_(self.spread.to(weight.device))
            bias.sub_(weight @ self.centre.to(weight.device))

    @torch.no_grad()
    def unfold_from(self, maps: Maps) -> None:
        """The inverse: let maps that read states as they are say the same of standard ones."""
        for weight, bias in maps:
            bias.add_(weight @ self.centre.to(weight.device))
            weight.mul_(self.spread.to(weight.device))
