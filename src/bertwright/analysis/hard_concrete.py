"""Gates that learn whether they are open (Louizos et al. 2018)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class HardConcrete:
    """A gate between 0 and 1, both ends included: drawn from a smooth distribution that is
    stretched from ``low`` to ``high`` and cut. The lower ``temperature``, the sharper it is."""

    temperature: float
    low: float
    high: float

    def gates(self, logits: Tensor, drawn: Tensor | None = None) -> Tensor:
        """Of these logits, by numbers ``drawn`` uniformly; or as they are when nothing is drawn any
        more (equations 10 to 13)."""
        if drawn is None:
            smooth = torch.sigmoid(logits)
        else:
            smooth = torch.sigmoid((torch.logit(drawn, 1e-6) + logits) / self.temperature)
        return (smooth * (self.high - self.low) + self.low).clamp(0, 1)

    def open_chance(self, logits: Tensor) -> Tensor:
        """How likely each gate is above 0 (equation 12)."""
        return torch.sigmoid(logits - self.temperature * math.log(-self.low / self.high))
