"""Rounding within a network that learns: the values are those of a grid, the gradients as if
nothing were rounded (the straight-through estimator, Bengio et al. 2013)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.model.grids import Grid, Scheme, Steps, steps_within


def rounded(values: Tensor, steps: Steps, clipped: bool = True) -> Tensor:
    """The nearest values that there are, in the dtype of the values; ``clipped`` gives those beyond
    the last of them no gradient."""
    exact = values.detach().float()
    levels = steps.levels(exact)
    found = (levels * steps.scale).to(values.dtype)
    if not (torch.is_grad_enabled() and values.requires_grad):
        return found
    # Nothing in value, and the gradient of the values themselves.
    through = values - values.detach()
    if clipped:
        through = torch.where(torch.round(exact / steps.scale) == levels, through, 0.0)
    return found + through


def rounded_weight(weight: Tensor, grid: Grid, clipped: bool = True) -> Tensor:
    """A weight (R, C) on its grid, in its own dtype."""
    groups = grid.cut(weight)
    steps = grid.steps(groups.detach().float())
    return grid.joined(rounded(groups, steps, clipped), weight.shape)


class Rounding(nn.Module):
    """Values (..., D), rounded where that is ``on``, within ranges for each of some neighbouring
    ``parts`` of D; ``watch`` is shown them before."""

    on: Tensor

    def __init__(self, parts: int, bits: int, scheme: Scheme, clipped: bool) -> None:
        super().__init__()
        self.parts, self.bits, self.clipped = parts, bits, clipped
        self.scheme: Scheme = scheme
        self.watch: Callable[[Tensor], None] | None = None
        self.register_buffer("on", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        parted = x.unflatten(-1, (self.parts, -1))
        if self.watch is not None:
            self.watch(parted.detach())
        low, high = self.range(parted.detach())
        steps = steps_within(low[..., None], high[..., None], self.bits, self.scheme)
        # A copy, because a layer that runs again before the gradients may have it turned on.
        on = self.on.clone()
        return torch.where(on, rounded(parted, steps, self.clipped), parted).flatten(-2)

    def range(self, parted: Tensor) -> tuple[Tensor, Tensor]:
        """Of values (..., parts, w): from where to where they are rounded, (..., parts)."""
        raise TypeError(f"{type(self).__name__} knows no range")


class WithinRange(Rounding):
    """Within a range that is known before: ``low`` and ``high`` (parts,)."""

    low: Tensor
    high: Tensor

    def __init__(self, parts: int, bits: int, scheme: Scheme, clipped: bool) -> None:
        super().__init__(parts, bits, scheme, clipped)
        self.register_buffer("low", torch.zeros(parts))
        self.register_buffer("high", torch.zeros(parts))

    def range(self, parted: Tensor) -> tuple[Tensor, Tensor]:
        return self.low, self.high


class ByToken(Rounding):
    """Within the range of each place by itself, whatever stands beside it."""

    def range(self, parted: Tensor) -> tuple[Tensor, Tensor]:
        return parted.amin(-1), parted.amax(-1)


class RoundedLinear(nn.Linear):
    """A linear layer that rounds what it ``reads`` and what it ``writes``."""

    def __init__(self, linear: nn.Linear, reads: nn.Module, writes: nn.Module) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter("bias", linear.bias)
        self.reads, self.writes = reads, writes

    def forward(self, input: Tensor) -> Tensor:
        return self.writes(F.linear(self.reads(input), self.weight, self.bias))
