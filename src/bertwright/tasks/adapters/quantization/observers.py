"""The axis of observers: how activation ranges follow from the values seen in training."""

from math import ceil
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.models.quantized_weights import QuantizationScheme


class ObserverConfig(Config):
    """The axis of observers."""

    def build(self, num_parts: int, scheme: QuantizationScheme) -> "ActivationRangeObserver":
        """Return a new observer for values in ``num_parts`` parts."""
        settings = self.model_dump(exclude={"kind"})
        return ActivationRangeObserver(num_parts, scheme, **settings)


class MovingAverageObserverConfig(ObserverConfig):
    """The moving average of each batch's minimum and maximum, with bias correction.

    Zafrir et al. (2019); Kingma and Ba (2015).
    """

    kind: Literal["moving"] = "moving"
    decay: float = Field(default=0.999, ge=0, lt=1)


class MinMaxObserverConfig(ObserverConfig):
    """The minimum and maximum of all values."""

    kind: Literal["extremes"] = "extremes"


class PercentileObserverConfig(ObserverConfig):
    """The moving average of a percentile of each batch's values.

    The percentile is of absolute values; an asymmetric scheme takes one at either end.
    """

    kind: Literal["percentile"] = "percentile"
    percentile: float = Field(default=99.9, gt=50, le=100)
    decay: float = Field(default=0.999, ge=0, lt=1)


class ActivationRangeObserver(nn.Module):
    """Observed ranges ``low`` and ``high`` (parts,) float32, over ``count`` batches.

    With ``decay`` they are moving averages, without it the minimum and maximum.
    """

    low: Tensor
    high: Tensor
    count: Tensor

    def __init__(
        self,
        num_parts: int,
        scheme: QuantizationScheme,
        *,
        decay: float | None = None,
        percentile: float = 100.0,
    ) -> None:
        super().__init__()
        self.scheme: QuantizationScheme = scheme
        self.decay, self.percentile = decay, percentile
        self.register_buffer("low", torch.zeros(num_parts))
        self.register_buffer("high", torch.zeros(num_parts))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def reset(self) -> None:
        """Discard all observations."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Observe the values (N, parts, w) of one batch; an empty batch changes nothing."""
        if not len(values):
            return
        flat = values.float().transpose(0, 1).flatten(1)
        if self.scheme == "symmetric":
            high = percentile(flat.abs(), self.percentile)
            low = -high
        else:
            high, low = percentile(flat, self.percentile), -percentile(-flat, self.percentile)
        self.count += 1
        if self.decay is None:
            self.low.copy_(torch.minimum(self.low, low))
            self.high.copy_(torch.maximum(self.high, high))
            return
        self.low.mul_(self.decay).add_(low, alpha=1 - self.decay)
        self.high.mul_(self.decay).add_(high, alpha=1 - self.decay)

    def value_range(self) -> tuple[Tensor, Tensor]:
        """Return the range of each part, (parts,); 0 before the first batch."""
        count = int(self.count)
        if self.decay is None or not count:
            return self.low, self.high
        correction = 1 - self.decay**count
        return self.low / correction, self.high / correction


def percentile(values: Tensor, percent: float) -> Tensor:
    """Return the percentile of values (parts, n), rounded up to one of them: (parts,)."""
    if percent == 100:
        return values.amax(1)
    count = values.shape[1]
    # The tolerance keeps rounding errors from raising the rank.
    rank = max(ceil(percent / 100 * count - 1e-6), 1)
    return values.topk(rank, largest=False, sorted=False).values.amax(1)
