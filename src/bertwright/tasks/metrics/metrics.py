"""Metrics of predictions, as statistics of sums over examples, so that they can be bootstrapped.

Each output type lists the metrics that it supports. Higher is better; an undefined metric (a
correlation with a constant, or F1 without any case) is 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray64 = NDArray[np.float64]

LabelStatistic = Callable[["LabelCounts"], FloatArray64]


class MetricSums(NamedTuple):
    """Values per unit (N, K), dense or sparse, and the statistic (...) of their sums (..., K)."""

    values: Any
    statistic: Callable[[FloatArray64], FloatArray64]


@dataclass(frozen=True)
class Metric:
    """A function that maps references and predictions, in equal number, to a score.

    Attributes:
        sums: the values to sum, given references and predictions.
        is_ranking: whether inputs are the relevance and the scores of the texts of each query.
    """

    sums: Callable[[Sequence[Any], Sequence[Any]], MetricSums]
    is_ranking: bool = False

    def __call__(self, references: Sequence[Any], predictions: Sequence[Any]) -> float:
        values, statistic = self.sums(references, predictions)
        return float(statistic(np.ones(values.shape[0]) @ values))


def mean_sums(scores: Sequence[float]) -> MetricSums:
    """Return the sums of a mean over units."""

    def mean(sums: FloatArray64) -> FloatArray64:
        return sums[..., 0] / sums[..., 1]

    return MetricSums(np.stack([scores, np.ones(len(scores))], 1), mean)


def mean_metric(score: Callable[[Any, Any], float]) -> Metric:
    """Return a metric that is the mean of a score of reference and prediction."""

    def sums(references: Sequence[Any], predictions: Sequence[Any]) -> MetricSums:
        return mean_sums([score(a, b) for a, b in zip(references, predictions, strict=True)])

    return Metric(sums)


def label_metric(
    statistic: LabelStatistic, unit: Literal["label", "words", "labels"] = "label"
) -> Metric:
    """Return a metric of label counts; a unit has one label, one per word, or a set of labels."""

    def sums(references: Sequence[Any], predictions: Sequence[Any]) -> MetricSums:
        if unit == "label":
            references = [(str(label),) for label in references]
            predictions = [(str(label),) for label in predictions]
        values, labels = _count_labels(references, predictions, is_aligned=unit != "labels")
        positive_index = labels.index("1") if "1" in labels else None

        def statistic_of_sums(sums: FloatArray64) -> FloatArray64:
            blocks = sums.reshape(*sums.shape[:-1], 3, len(labels))
            counts = (blocks[..., 0, :], blocks[..., 1, :], blocks[..., 2, :])
            return statistic(LabelCounts(*counts, positive_index))

        return MetricSums(values, statistic_of_sums)

    return Metric(sums)


class LabelCounts(NamedTuple):
    """Correct, predicted and reference counts per label (..., K), and the index of label ``1``."""

    correct: FloatArray64
    predicted: FloatArray64
    references: FloatArray64
    positive_index: int | None


def accuracy(counts: LabelCounts) -> FloatArray64:
    """Return the fraction of correct predictions."""
    return counts.correct.sum(-1) / np.maximum(counts.references.sum(-1), 1)


def micro_f1(counts: LabelCounts) -> FloatArray64:
    """Return F1 over all decisions together; with one label per unit it equals the accuracy."""
    total = counts.predicted.sum(-1) + counts.references.sum(-1)
    return 2 * counts.correct.sum(-1) / np.maximum(total, 1)


def macro_f1(counts: LabelCounts) -> FloatArray64:
    """Return the mean F1 of the labels that occur in the references.

    A label that is predicted but not in the references only lowers the F1 of other labels. The set
    of labels is thus the same for all models, which makes models comparable.
    """
    scores = 2 * counts.correct / np.maximum(counts.predicted + counts.references, 1)
    occurs = counts.references > 0
    return (scores * occurs).sum(-1) / np.maximum(occurs.sum(-1), 1)


def positive_f1(counts: LabelCounts) -> FloatArray64:
    """Return the F1 of the label ``1``, the GLUE metric of paraphrase tasks."""
    if (index := counts.positive_index) is None:
        return np.zeros(counts.correct.shape[:-1])
    total = counts.predicted[..., index] + counts.references[..., index]
    return 2 * counts.correct[..., index] / np.maximum(total, 1)


def matthews(counts: LabelCounts) -> FloatArray64:
    """Return Matthews' correlation, from -1 to 1, for any number of classes (Gorodkin 2004)."""
    correct, predicted, references, _ = counts
    total = references.sum(-1)
    spread = (total**2 - (predicted**2).sum(-1)) * (total**2 - (references**2).sum(-1))
    covariance = correct.sum(-1) * total - (predicted * references).sum(-1)
    return covariance / np.sqrt(np.where(spread > 0, spread, np.inf))


def _count_labels(
    references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], is_aligned: bool
) -> tuple[Any, list[str]]:
    """Return the correct, predicted and reference labels of each unit, sparse (N, 3 K).

    ``is_aligned``: the n-th predicted label corresponds to the n-th reference.
    """
    from scipy.sparse import csr_array  # a model loads without it

    labels = sorted({label for unit in (*references, *predictions) for label in unit})
    index = {label: number for number, label in enumerate(labels)}
    entries: list[tuple[int, int]] = []
    for unit, (true, predicted) in enumerate(zip(references, predictions, strict=True)):
        correct = (
            [a for a, b in zip(true, predicted, strict=True) if a == b]
            if is_aligned
            else set(true) & set(predicted)
        )
        for block, unit_labels in enumerate((correct, predicted, true)):
            entries += [(unit, block * len(labels) + index[label]) for label in unit_labels]
    units, columns = np.array(entries, np.int64).reshape(-1, 2).T
    shape = (len(references), 3 * len(labels))
    return csr_array((np.ones(len(units)), (units, columns)), shape), labels


def _correlation(is_ranked: bool) -> Metric:
    def sums(references: Sequence[float], predictions: Sequence[float]) -> MetricSums:
        from scipy.stats import rankdata

        pairs = np.array([references, predictions], np.float64)
        if is_ranked:  # among all examples
            pairs = np.array([rankdata(numbers) for numbers in pairs])
        # Once mean and scale are removed, the sums of squares are exact enough.
        pairs = np.where(np.ptp(pairs, 1, keepdims=True) > 0, pairs - pairs.mean(1)[:, None], 0.0)
        x, y = pairs / np.maximum(np.abs(pairs).max(1, keepdims=True), np.finfo(np.float64).tiny)
        return MetricSums(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1), correlation)

    def correlation(sums: FloatArray64) -> FloatArray64:
        n, sx, sy, sxx, syy, sxy = np.moveaxis(sums, -1, 0)
        spread = (sxx - sx * sx / n) * (syy - sy * sy / n)
        return (sxy - sx * sy / n) / np.sqrt(np.where(spread > 1e-12, spread, np.inf))

    return Metric(sums)


PEARSON, SPEARMAN = _correlation(is_ranked=False), _correlation(is_ranked=True)
"""Correlations of numbers; tied values share their mean rank."""

NEGATIVE_MEAN_SQUARED_ERROR = mean_metric(lambda reference, value: -((reference - value) ** 2))

SUBSET_ACCURACY = mean_metric(lambda reference, value: float(set(reference) == set(value)))
"""The fraction of texts whose set of labels is predicted exactly."""
