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
    task: Task, examples: Examples, predictions: Sequence[Prediction], scores: Mapping[str, float]
) -> dict[str, list[float] | None]:
    """Return the 95 % bootstrap interval of each score.

    The interval is None for a single example, and for a custom metric that is not a mean over
    examples.
    """
    intervals: dict[str, list[float] | None] = {}
    for name, score in scores.items():
        sums = _bounded_sums(task, name, examples, predictions)
        is_known = abs(float(sums.statistic(sums.values.sum(0))) - score) < TOLERANCE
        intervals[name] = (
            _interval_bounds(bootstrap_statistic(sums.statistic, sums.values)[0])
            if is_known
            else None
        )
    return intervals


def paired_difference(
    task: Task, examples: Examples, first: Sequence[Prediction], second: Sequence[Prediction]
) -> ConfidenceInterval:
    """Return how much the first predictions score above the second, by the main metric.

    The interval is over examples, paired between the two.
    """
    a, b = (
        _bounded_sums(task, task.metrics[0], examples, predictions)
        for predictions in (first, second)
    )
    width = a.values.shape[1]

    def difference(sums: FloatArray64) -> FloatArray64:
        return a.statistic(sums[..., :width]) - b.statistic(sums[..., width:])

    return bootstrap_statistic(difference, np.concatenate([a.values, b.values], 1))[0]


def _interval_bounds(interval: ConfidenceInterval) -> list[float] | None:
    is_finite = np.isfinite([interval.low, interval.high]).all()
    return [interval.low, interval.high] if is_finite else None


def _bounded_sums(
    task: Task, metric: str, examples: Examples, predictions: Sequence[Prediction]
) -> MetricSums:
    """Return the dense sums of a metric, per example or, for many examples, per group."""
    from scipy.sparse import csr_array

    values, statistic = task.output_type.metric_sums(metric, examples, predictions)
    number, width = values.shape
    units = min(number, MAX_UNITS, max(MAX_NUMBERS // width, 2))
    if number > units:
        group = np.random.default_rng(0).permutation(number) % units
        values = csr_array((np.ones(number), (group, np.arange(number)))) @ values
    return MetricSums(values.toarray() if isinstance(values, csr_array) else values, statistic)
