"""Means, confidence intervals and paired comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions, with a two-sided confidence interval at ``level``."""

    mean: float
    low: float
    high: float
    standard_deviation: float
    num_values: int

    @property
    def interval(self) -> list[float] | None:
        """Return [low, high]; None for a single value."""
        return [self.low, self.high] if self.num_values > 1 else None

    def __str__(self) -> str:
        mean = f"{self.mean:.4g}"
        return f"{mean} [{self.low:.4g}, {self.high:.4g}]" if self.interval else mean


def estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Return the mean of repetitions with its Student t interval; nan bounds for a single value."""
    array = np.asarray(values, dtype=np.float64)
    if not len(array):
        raise ValueError("there are no values to estimate a mean of")
    mean, count = float(array.mean()), len(array)
    if count < 2:
        return Estimate(mean, float("nan"), float("nan"), float("nan"), count)
    deviation = float(array.std(ddof=1))
    # The same quantile as scipy.stats, but importing that takes a second.
    half = float(special.stdtrit(count - 1, 0.5 + level / 2)) * deviation / count**0.5
    return Estimate(mean, mean - half, mean + half, deviation, count)


def expected_best(scores: Sequence[float]) -> list[float]:
    """Return the expected maximum score of 1, 2, ... N runs drawn from N with replacement.

    Source: Dodge et al. 2019, equation 4.
    """
    ordered = np.sort(np.asarray(scores))
    cumulative = np.arange(len(ordered) + 1) / len(ordered)
    return [
        float((ordered * np.diff(cumulative**draws)).sum()) for draws in range(1, 1 + len(ordered))
    ]


def paired_difference(
    first: Sequence[float], second: Sequence[float], level: float = 0.95
) -> Estimate:
    """Return the mean of ``first - second`` over paired repetitions, with its interval."""
    return estimate([a - b for a, b in zip(first, second, strict=True)], level)
