"""Means, intervals and paired comparisons, on scipy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions, with a two-sided interval of the given level."""

    mean: float
    low: float
    high: float
    deviation: float
    count: int

    @property
    def interval(self) -> list[float] | None:
        """None for a single value."""
        return [self.low, self.high] if self.count > 1 else None

    def __str__(self) -> str:
        mean = f"{self.mean:.4g}"
        return f"{mean} [{self.low:.4g}, {self.high:.4g}]" if self.interval else mean


def estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Mean and Student interval of independent repetitions; one value has no interval (nan)."""
    array = np.asarray(values, dtype=np.float64)
    mean, count = float(array.mean()), len(array)
    if count < 2:
        return Estimate(mean, float("nan"), float("nan"), float("nan"), count)
    deviation = float(array.std(ddof=1))
    # The quantile as scipy.stats gives it, which takes a second to be imported.
    half = float(special.stdtrit(count - 1, 0.5 + level / 2)) * deviation / count**0.5
    return Estimate(mean, mean - half, mean + half, deviation, count)


def paired(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> Estimate:
    """The difference ``first - second`` of paired repetitions, with its interval."""
    return estimate([a - b for a, b in zip(first, second, strict=True)], level)
