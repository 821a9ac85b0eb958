"""The axis of observers: from which smallest to which largest value activations are rounded, by
what is seen of them in training."""

from math import ceil
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.model.grids import Scheme


class Observer(Choice):
    """The axis."""

    def build(self, parts: int, scheme: Scheme) -> "Observed":
        """What has seen nothing yet, of values in so many parts."""
        raise TypeError(f"{type(self).__name__} is an axis, not an observer")


class Moving(Observer):
    """The moving average of the extremes of each batch, as if it had been so from the start: what
    ``decay`` leaves of its beginning is taken out (Zafrir et al. 2019; Kingma and Ba 2015)."""

    kind: Literal["moving"] = "moving"
    decay: float = Field(default=0.999, ge=0, lt=1)

    def build(self, parts: int, scheme: Scheme) -> "Observed":
        return Observed(parts, scheme, decay=self.decay)


class Extremes(Observer):
    """The extremes of all that was seen."""

    kind: Literal["extremes"] = "extremes"

    def build(self, parts: int, scheme: Scheme) -> "Observed":
        return Observed(parts, scheme)


class Percentile(Observer):
    """The moving average of what ``share`` per cent of the values of each batch do not exceed: by
    their size, or of an asymmetric scheme at either end."""

    kind: Literal["percentile"] = "percentile"
    share: float = Field(default=99.9, gt=50, le=100)
    decay: float = Field(default=0.999, ge=0, lt=1)

    def build(self, parts: int, scheme: Scheme) -> "Observed":
        return Observed(parts, scheme, decay=self.decay, share=self.share)


class Observed(nn.Module):
    """What was seen: ``low`` and ``high`` (parts,) float32, of ``count`` batches; their moving
    average with a ``decay``, without one the furthest."""

    low: Tensor
    high: Tensor
    count: Tensor

    def __init__(
        self, parts: int, scheme: Scheme, *, decay: float | None = None, share: float = 100.0
    ) -> None:
        super().__init__()
        self.scheme: Scheme = scheme
        self.decay, self.share = decay, share
        self.register_buffer("low", torch.zeros(parts))
        self.register_buffer("high", torch.zeros(parts))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def begin(self) -> None:
        """As if nothing had been seen."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def see(self, values: Tensor) -> None:
        """Values (N, parts, w) of one batch; where there are none, nothing was seen."""
        if not len(values):
            return
        of_parts = values.float().transpose(0, 1).flatten(1)
        if self.scheme == "symmetric":
            high = reached(of_parts.abs(), self.share)
            low = -high
        else:
            high, low = reached(of_parts, self.share), -reached(-of_parts, self.share)
        self.count += 1
        if self.decay is None:
            self.low.copy_(torch.minimum(self.low, low))
            self.high.copy_(torch.maximum(self.high, high))
            return
        self.low.mul_(self.decay).add_(low, alpha=1 - self.decay)
        self.high.mul_(self.decay).add_(high, alpha=1 - self.decay)

    def range(self) -> tuple[Tensor, Tensor]:
        """From where to where values reach, (parts,) each; 0 where nothing was seen."""
        count = int(self.count)
        if self.decay is None or not count:
            return self.low, self.high
        seen = 1 - self.decay**count
        return self.low / seen, self.high / seen


def reached(values: Tensor, share: float) -> Tensor:
    """What so many per cent of values (parts, n) do not exceed, at least: (parts,)."""
    if share == 100:
        return values.amax(1)
    number = values.shape[1]
    # Less a little: rounding must not ask for one more.
    rank = max(ceil(share / 100 * number - 1e-6), 1)
    return values.topk(rank, largest=False, sorted=False).values.amax(1)
