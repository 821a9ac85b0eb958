"""Bootstrap intervals of scores over examples.

Every metric is a statistic of sums over examples, so thousands of resamples are one matrix product.
Large sets of examples are resampled in groups.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertwright.core.significance import ConfidenceInterval, bootstrap_statistic
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.metrics.entity_spans import entity_spans
from bertwright.tasks.metrics.ranking import RANKING_METRICS
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task

FloatArray64 = NDArray[np.float64]

TOLERANCE = 1e-6
"""Tolerance between a score and the same statistic of sums."""

MAX_UNITS, MAX_NUMBERS = 5000, 500_000
"""Maximum number of examples, or groups, to resample; and of all their values."""


class MetricSums(NamedTuple):
    """Values of every unit (N, K), and the statistic (...) of their sums (..., K)."""

    values: FloatArray64
    statistic: Callable[[FloatArray64], FloatArray64]


def bootstrap_intervals(
    task: Task, examples: Examples, predictions: Sequence[Prediction], scores: Mapping[str, float]
) -> dict[str, list[float] | None]:
    """Return the 95 % bootstrap interval of each score.

    None where there is none: for a single example, or a custom metric that is no mean over
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

    The interval is over the examples, which are paired.
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
    sums = _metric_sums(task, metric, examples, predictions)
    number, width = sums.values.shape
    units = min(number, MAX_UNITS, max(MAX_NUMBERS // width, 2))
    if number == units:
        return sums
    group = np.random.default_rng(0).permutation(number) % units
    values = np.zeros((units, width))
    np.add.at(values, group, sums.values)
    return MetricSums(values, sums.statistic)


def _metric_sums(
    task: Task, metric: str, examples: Examples, predictions: Sequence[Prediction]
) -> MetricSums:
    output_type = task.output_type
    if metric in RANKING_METRICS:
        return _ranking_sums(task, metric, examples, predictions)
    references: list[Any] = [output_type.reference(example) for example in examples]
    predicted: list[Any] = [prediction.value for prediction in predictions]
    if metric in ("pearson", "spearman"):
        return _correlation_sums(references, predicted, is_ranked=metric == "spearman")
    if metric == "span-f1":
        return MetricSums(_span_counts(references, predicted), _f1)
    kind = output_type.kind_name()
    if metric in _LABEL_STATISTICS and kind in ("class", "cloze", "option", "tags", "labels"):
        if kind not in ("tags", "labels"):
            references = [(str(label),) for label in references]
            predicted = [(str(label),) for label in predicted]
        return _label_sums(metric, references, predicted, is_aligned=kind != "labels")
    score = output_type.metric(metric)
    return _mean_sums([score([r], [p]) for r, p in zip(references, predicted, strict=True)])


def _mean_sums(scores: Sequence[float]) -> MetricSums:
    """Return the sums of a mean over units."""

    def mean(sums: FloatArray64) -> FloatArray64:
        return sums[..., 0] / sums[..., 1]

    return MetricSums(np.stack([scores, np.ones(len(scores))], 1), mean)


def _f1(sums: FloatArray64) -> FloatArray64:
    """Return F1 of the correct spans (..., 0) and all spans (..., 1); 0 where there are none."""
    return 2 * sums[..., 0] / np.maximum(sums[..., 1], 1)


def _span_counts(
    references: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> FloatArray64:
    pairs = [
        (set(entity_spans(a)), set(entity_spans(b)))
        for a, b in zip(references, predicted, strict=True)
    ]
    return np.array([(len(a & b), len(a) + len(b)) for a, b in pairs], np.float64)


def _correlation_sums(
    references: Sequence[float], predicted: Sequence[float], is_ranked: bool
) -> MetricSums:
    """Return the sums of a correlation; ranks are those among all examples."""
    from scipy.stats import rankdata

    pairs = np.array([references, predicted], np.float64)
    x, y = np.array([rankdata(numbers) for numbers in pairs]) if is_ranked else pairs
    x, y = x - x.mean(), y - y.mean()
    values = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1)

    def correlation(sums: FloatArray64) -> FloatArray64:
        n, sx, sy, sxx, syy, sxy = np.moveaxis(sums, -1, 0)
        spread = (sxx - sx * sx / n) * (syy - sy * sy / n)
        return (sxy - sx * sy / n) / np.sqrt(np.where(spread > 1e-12, spread, np.inf))

    return MetricSums(values, correlation)


def _label_sums(
    metric: str,
    references: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    is_aligned: bool,
) -> MetricSums:
    """Count correct, predicted and reference labels of each unit: (N, 3 K).

    ``is_aligned``: the n-th predicted label corresponds to the n-th reference.
    """
    labels = sorted({label for unit in (*references, *predicted) for label in unit})
    index = {label: number for number, label in enumerate(labels)}
    num_labels = len(labels)
    values = np.zeros((len(references), 3 * num_labels))
    for unit, (true, guessed) in enumerate(zip(references, predicted, strict=True)):
        correct = (
            [a for a, b in zip(true, guessed, strict=True) if a == b]
            if is_aligned
            else set(true) & set(guessed)
        )
        for block, unit_labels in enumerate((correct, guessed, true)):
            for label in unit_labels:
                values[unit, block * num_labels + index[label]] += 1
    positive_index = index.get("1")

    def statistic(sums: FloatArray64) -> FloatArray64:
        blocks = sums.reshape(*sums.shape[:-1], 3, num_labels)
        counts = (blocks[..., 0, :], blocks[..., 1, :], blocks[..., 2, :])
        return _LABEL_STATISTICS[metric](_LabelCounts(*counts, positive_index))

    return MetricSums(values, statistic)


class _LabelCounts(NamedTuple):
    """Correct, predicted and reference labels (..., K), and the index of the label ``1``."""

    correct: FloatArray64
    predicted: FloatArray64
    references: FloatArray64
    positive_index: int | None


def _accuracy(counts: _LabelCounts) -> FloatArray64:
    return counts.correct.sum(-1) / np.maximum(counts.references.sum(-1), 1)


def _micro_f1(counts: _LabelCounts) -> FloatArray64:
    total = counts.predicted.sum(-1) + counts.references.sum(-1)
    return 2 * counts.correct.sum(-1) / np.maximum(total, 1)


def _macro_f1(counts: _LabelCounts) -> FloatArray64:
    scores = 2 * counts.correct / np.maximum(counts.predicted + counts.references, 1)
    occurs = counts.references > 0
    return (scores * occurs).sum(-1) / np.maximum(occurs.sum(-1), 1)


def _positive_f1(counts: _LabelCounts) -> FloatArray64:
    if (index := counts.positive_index) is None:
        return np.zeros(counts.correct.shape[:-1])
    total = counts.predicted[..., index] + counts.references[..., index]
    return 2 * counts.correct[..., index] / np.maximum(total, 1)


def _matthews(counts: _LabelCounts) -> FloatArray64:
    """Matthews' correlation for any number of classes (Gorodkin 2004)."""
    correct, predicted, references, _ = counts
    total = references.sum(-1)
    spread = (total**2 - (predicted**2).sum(-1)) * (total**2 - (references**2).sum(-1))
    covariance = correct.sum(-1) * total - (predicted * references).sum(-1)
    return covariance / np.sqrt(np.where(spread > 0, spread, np.inf))


_LABEL_STATISTICS: dict[str, Callable[[_LabelCounts], FloatArray64]] = {
    "accuracy": _accuracy,
    "micro-f1": _micro_f1,
    "macro-f1": _macro_f1,
    "positive-f1": _positive_f1,
    "matthews": _matthews,
}


def _ranking_sums(
    task: Task, metric: str, examples: Examples, predictions: Sequence[Prediction]
) -> MetricSums:
    """Return the sums of a mean over queries; those without relevant texts have no score."""
    output_type: Any = task.output_type
    queries = output_type.queries(examples, predictions)
    scored = [query for query in queries if (query.relevance > 0).any()]
    return _mean_sums([RANKING_METRICS[metric]([query]) for query in scored] or [0.0])
