"""Weights that stand on a grid: whole numbers of few bits, times a scale that some of them share.

A scale has 16 significant bits, so that times a whole number of 8 bits it is exact in float32. What
stands on a grid stays where it is when it is rounded again, and a file of the whole numbers gives
back the same weights bit for bit.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Scheme = Literal["symmetric", "asymmetric"]
"""Whether 0 is in the middle, or anywhere between the smallest value and the largest."""

BITS = (2, 8)
"""The fewest and the most that a whole number has."""

DROPPED = (1 << 8) - 1
"""The last bits of the significand of a float32, which a scale is without."""


@dataclass(frozen=True)
class Steps:
    """The ``scale`` of one step, and from which whole number to which there are any; all float32,
    broadcast to the values."""

    scale: Tensor
    lowest: Tensor
    highest: Tensor

    def levels(self, values: Tensor) -> Tensor:
        """The whole numbers of values, as float32; a half goes to the even one."""
        return torch.round(values / self.scale).clamp(self.lowest, self.highest)

    def rounded(self, values: Tensor) -> Tensor:
        """The values nearest to these that there are."""
        return self.levels(values) * self.scale


def steps_within(low: Tensor, high: Tensor, bits: int, scheme: Scheme) -> Steps:
    """The steps by which so many bits reach from ``low`` to ``high``, and to 0, which is one of
    them; where both are 0 the scale is 1."""
    low, high = low.float().clamp(max=0.0), high.float().clamp(min=0.0)
    if scheme == "symmetric":
        top = highest_level(bits, scheme)
        scale = _exact(_divided(torch.maximum(-low, high), top))
        return Steps(scale, torch.full_like(scale, -top), torch.full_like(scale, top))
    return _between(low, high, highest_level(bits, scheme), 0)


def highest_level(bits: int, scheme: Scheme) -> int:
    """The largest whole number of a symmetric grid; how many steps an asymmetric one has."""
    return 2 ** (bits - 1) - 1 if scheme == "symmetric" else 2**bits - 1


def _between(low: Tensor, high: Tensor, top: int, unused: int) -> Steps:
    """So many steps, the last of which are ``unused``."""
    scale = _exact(_divided(high - low, top - unused))
    lowest = torch.round(low / scale)
    return Steps(scale, lowest, lowest + top)


def _divided(values: Tensor, by: int) -> Tensor:
    """Rounded once. By a plain number a card would not divide, but multiply with its reciprocal."""
    return values / torch.full_like(values, by)


def _exact(scale: Tensor) -> Tensor:
    """A scale that is not smaller and has 16 significant bits; 1 in the place of 0."""
    raised = (scale.contiguous().view(torch.int32) + DROPPED) & ~DROPPED
    return torch.where(scale > 0, raised.view(torch.float32), 1.0)


@dataclass(frozen=True)
class Grid:
    """How a matrix becomes whole numbers of so many ``bits``: groups of so many neighbouring
    ``rows`` and ``columns`` have a scale each. The last ones may be smaller."""

    bits: int
    rows: int
    columns: int
    scheme: Scheme = "symmetric"

    def cut(self, weight: Tensor) -> Tensor:
        """A weight (R, C) as groups (A, rows, B, columns), filled up with zeros."""
        short = (-weight.shape[0] % self.rows, -weight.shape[1] % self.columns)
        filled = F.pad(weight, (0, short[1], 0, short[0])) if any(short) else weight
        return filled.unflatten(1, (-1, self.columns)).unflatten(0, (-1, self.rows))

    @staticmethod
    def joined(groups: Tensor, shape: torch.Size) -> Tensor:
        """What was cut, (R, C) again."""
        return groups.flatten(2, 3).flatten(0, 1)[: shape[0], : shape[1]]

    def steps(self, groups: Tensor) -> Steps:
        """Of groups, by what each of them holds: (A, 1, B, 1)."""
        low, high = groups.amin((1, 3), keepdim=True), groups.amax((1, 3), keepdim=True)
        return steps_within(low, high, self.bits, self.scheme)

    def rounded(self, weight: Tensor) -> Tensor:
        """The nearest weight on the grid, (R, C) float32."""
        groups = self.cut(weight.float())
        return self.joined(self.steps(groups).rounded(groups), weight.shape)

    def standing(self, weight: Tensor) -> tuple[Steps, Tensor] | None:
        """The steps of groups, and the whole numbers (R, C) of a weight that stands on such a grid;
        None where it does not."""
        groups = self.cut(weight.float())
        steps = self.steps(groups)
        if self.scheme == "asymmetric":
            steps = self._reaching(groups, steps)
        levels = steps.levels(groups)
        if not torch.equal(levels * steps.scale, groups):
            return None
        return steps, self.joined(levels, weight.shape)

    def _reaching(self, groups: Tensor, steps: Steps) -> Steps:
        """The steps of what was rounded already, whose highest number may be used by nothing."""
        low = groups.amin((1, 3), keepdim=True).clamp(max=0.0)
        high = groups.amax((1, 3), keepdim=True).clamp(min=0.0)
        top = highest_level(self.bits, self.scheme)
        fewer = _between(low, high, top, 1)
        fits = (steps.rounded(groups) == groups).all((1, 3), keepdim=True)
        scale = torch.where(fits, steps.scale, fewer.scale)
        lowest = torch.where(fits, steps.lowest, fewer.lowest)
        return Steps(scale, lowest, lowest + top)
