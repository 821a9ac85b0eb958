"""Bootstrap intervals of scores over examples.

Every metric is a statistic of sums over examples, so thousands of resamples are one matrix product.
Large sets of examples are resampled in groups.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bertwright.core.significance import ConfidenceInterval, bootstrap_statistic
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.metrics.metrics import FloatArray64, MetricSums
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task

TOLERANCE = 1e-6
"""Tolerance between a score and the same score computed from sums."""

MAX_UNITS, MAX_NUMBERS = 5000, 500_000
"""Maximum number of examples or groups to resample, and of values over all of them."""


def bootstrap_intervals(
    task: Task,
    examples: Examples,
    predictions: Sequence[Prediction],
    scores: Mapping[str, float],
    parts: Sequence[slice] | None = None,
) -> dict[str, list[float] | None]:
    """Return the 95 % bootstrap interval of each score.

    The interval is None for a single example, and for a custom metric that is not a mean over
    examples. ``parts`` are the examples that were predicted by different models.
    """
    intervals: dict[str, list[float] | None] = {}
    for name, score in scores.items():
        sums = task.output_type.metric_sums(name, examples, predictions, parts)
        is_known = abs(float(sums.statistic(sums.values.sum(0))) - score) < TOLERANCE
        intervals[name] = finite_bounds(score_interval(sums)) if is_known else None
    return intervals


def paired_difference(
    task: Task,
    examples: Examples,
    first: Sequence[Prediction],
    second: Sequence[Prediction],
    parts: Sequence[slice] | None = None,
) -> ConfidenceInterval:
    """Return how much the first predictions score above the second, by the main metric.

    The interval is over examples, paired between the two. ``parts`` are the examples that were
    predicted by different models.
    """
    metric, output_type = task.metrics[0], task.output_type
    return score_difference(
        *(output_type.metric_sums(metric, examples, values, parts) for values in (first, second))
    )


def score_interval(sums: MetricSums) -> ConfidenceInterval:
    """Return a score with its interval over units: examples, or groups of many."""
    values, statistic = _bounded_sums(sums, _num_units(sums))
    return bootstrap_statistic(statistic, values)[0]


def score_difference(first: MetricSums, second: MetricSums) -> ConfidenceInterval:
    """Return how much the first score is above the second, both over the same units in order."""
    num_units = min(_num_units(first), _num_units(second))
    a, b = _bounded_sums(first, num_units), _bounded_sums(second, num_units)
    # A matrix product may round the sums of equal columns differently: sum each of them once.
    columns, inverse = np.unique(
        np.concatenate([a.values, b.values], 1), axis=1, return_inverse=True
    )
    of_first, of_second = np.split(inverse.ravel(), [a.values.shape[1]])

    def difference(sums: FloatArray64) -> FloatArray64:
        return a.statistic(sums[..., of_first]) - b.statistic(sums[..., of_second])

    return bootstrap_statistic(difference, columns)[0]


def finite_bounds(interval: ConfidenceInterval) -> list[float] | None:
    """Return [low, high]; None if there is only one unit."""
    is_finite = np.isfinite([interval.low, interval.high]).all()
    return [interval.low, interval.high] if is_finite else None


def _num_units(sums: MetricSums) -> int:
    """Return the number of units to resample: examples, or groups of many."""
    number, width = sums.values.shape
    return min(number, MAX_UNITS, max(MAX_NUMBERS // max(width, 1), 2))


def _bounded_sums(sums: MetricSums, num_units: int) -> MetricSums:
    """Return the dense sums of a metric over ``num_units`` units, random groups of examples."""
    from scipy.sparse import csr_array

    values, statistic = sums
    number = values.shape[0]
    if number > num_units:
        group = np.random.default_rng(0).permutation(number) % num_units
        values = csr_array((np.ones(number), (group, np.arange(number)))) @ values
    return MetricSums(values.toarray() if isinstance(values, csr_array) else values, statistic)
