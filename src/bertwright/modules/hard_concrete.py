"""Hard concrete gates (Louizos et al. 2018)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class HardConcrete:
    """A gate in [0, 1], both ends included, with a learnable probability of being 0.

    A smooth distribution is stretched to [``low``, ``high``] and clipped to [0, 1]. A lower
    ``temperature`` makes it sharper.
    """

    temperature: float
    low: float
    high: float

    def gates(self, logits: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the gates for these logits (equations 10 to 13).

        ``noise`` are uniform random numbers of the same shape; None gives deterministic gates.
        """
        if noise is None:
            smooth = torch.sigmoid(logits)
        else:
            smooth = torch.sigmoid((torch.logit(noise, 1e-6) + logits) / self.temperature)
        return (smooth * (self.high - self.low) + self.low).clamp(0, 1)

    def open_probability(self, logits: Tensor) -> Tensor:
        """Return the probability that each gate is above 0 (equation 12)."""
        return torch.sigmoid(logits - self.temperature * math.log(-self.low / self.high))
