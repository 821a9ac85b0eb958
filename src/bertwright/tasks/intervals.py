"""How far a score can be trusted: bootstrap intervals over the examples that it is of.

Every metric is a figure of sums over examples, so that thousands of draws are one product of
matrices. Where examples are many, groups of them are drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertwright.significance import Interval, of_sums
from bertwright.tasks.answers import Prediction
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.rankings import RANKINGS
from bertwright.tasks.spans import spans
from bertwright.tasks.task import Task

Numbers = NDArray[np.float64]

TOLERANCE = 1e-6
"""Between a score and the same figure of sums."""

MAX_UNITS, MAX_NUMBERS = 5000, 500_000
"""So many examples, or groups of them, are drawn; and their numbers together."""


class Sums(NamedTuple):
    """Numbers of every unit (N, K), and the figure (...) that sums of them (..., K) make."""

    values: Numbers
    figure: Callable[[Numbers], Numbers]


def intervals(
    task: Task,
    examples: Examples,
    predictions: Sequence[Prediction],
    scores: Mapping[str, float],
) -> dict[str, list[float] | None]:
    """Return the 95 % bootstrap interval of every one of these scores; None where there is none, as
    of a single example, or of a metric of one's own that is no mean over examples."""
    ends: dict[str, list[float] | None] = {}
    for name, score in scores.items():
        sums = _sums_of(task, name, examples, predictions)
        known = abs(float(sums.figure(sums.values.sum(0))) - score) < TOLERANCE
        ends[name] = _ends(of_sums(sums.figure, sums.values)[0]) if known else None
    return ends


def lead(
    task: Task, examples: Examples, first: Sequence[Prediction], second: Sequence[Prediction]
) -> Interval:
    """Return by how much the first predictions score more than the second, of the metric that
    counts first, with its interval over the examples, which are paired."""
    one, other = (_sums_of(task, task.metrics[0], examples, answers) for answers in (first, second))
    number = one.values.shape[1]
    both = np.concatenate([one.values, other.values], 1)

    def difference(sums: Numbers) -> Numbers:
        return one.figure(sums[..., :number]) - other.figure(sums[..., number:])

    return of_sums(difference, both)[0]


def _ends(interval: Interval) -> list[float] | None:
    known = np.isfinite([interval.low, interval.high]).all()
    return [interval.low, interval.high] if known else None


def _sums_of(
    task: Task, metric: str, examples: Examples, predictions: Sequence[Prediction]
) -> Sums:
    sums = _sums(task, metric, examples, predictions)
    number, width = sums.values.shape
    units = min(number, MAX_UNITS, max(MAX_NUMBERS // width, 2))
    if number == units:
        return sums
    group = np.random.default_rng(0).permutation(number) % units
    values = np.zeros((units, width))
    np.add.at(values, group, sums.values)
    return Sums(values, sums.figure)


def _sums(task: Task, metric: str, examples: Examples, predictions: Sequence[Prediction]) -> Sums:
    answer = task.answer
    if metric in RANKINGS:
        return _of_queries(task, metric, examples, predictions)
    right: list[Any] = [answer.reference(example) for example in examples]
    predicted: list[Any] = [prediction.answer for prediction in predictions]
    if metric in ("pearson", "spearman"):
        return _of_numbers(right, predicted, ranked=metric == "spearman")
    if metric == "span-f1":
        return Sums(_span_counts(right, predicted), _f1)
    kind = answer.own_kind()
    if metric in _COUNTED and kind in ("class", "cloze", "option", "tags", "labels"):
        if kind not in ("tags", "labels"):
            right = [(str(one),) for one in right]
            predicted = [(str(one),) for one in predicted]
        return _of_labels(metric, right, predicted, by_place=kind != "labels")
    # A mean over examples, each of which is scored by itself.
    alone = [answer.metric(metric)([r], [s]) for r, s in zip(right, predicted, strict=True)]
    return Sums(np.stack([alone, np.ones(len(alone))], 1), _ratio)


def _ratio(sums: Numbers) -> Numbers:
    return sums[..., 0] / sums[..., 1]


def _f1(sums: Numbers) -> Numbers:
    """Return twice the common spans over those of both; 0 where there are none."""
    return 2 * sums[..., 0] / np.maximum(sums[..., 1], 1)


def _span_counts(right: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Numbers:
    pairs = [(set(spans(a)), set(spans(b))) for a, b in zip(right, predicted, strict=True)]
    return np.array([(len(a & b), len(a) + len(b)) for a, b in pairs], np.float64)


def _of_numbers(right: Sequence[float], predicted: Sequence[float], ranked: bool) -> Sums:
    """A correlation; of ranks those among all examples."""
    from scipy.stats import rankdata

    pairs = np.array([right, predicted], np.float64)
    x, y = np.array([rankdata(numbers) for numbers in pairs]) if ranked else pairs
    x, y = x - x.mean(), y - y.mean()
    values = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1)

    def correlation(sums: Numbers) -> Numbers:
        n, sx, sy, sxx, syy, sxy = np.moveaxis(sums, -1, 0)
        spread = (sxx - sx * sx / n) * (syy - sy * sy / n)
        return (sxy - sx * sy / n) / np.sqrt(np.where(spread > 1e-12, spread, np.inf))

    return Sums(values, correlation)


def _of_labels(
    metric: str, right: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], by_place: bool
) -> Sums:
    """Count of every label how often it is predicted rightly, predicted, and right: (N, 3 K);
    ``by_place`` where the n-th predicted label stands for the n-th that is right."""
    labels = sorted({label for of in (*right, *predicted) for label in of})
    index = {label: number for number, label in enumerate(labels)}
    count = len(labels)
    values = np.zeros((len(right), 3 * count))
    for unit, (wanted, answered) in enumerate(zip(right, predicted, strict=True)):
        common = (
            [a for a, b in zip(wanted, answered, strict=True) if a == b]
            if by_place
            else set(wanted) & set(answered)
        )
        for block, some in enumerate((common, answered, wanted)):
            for label in some:
                values[unit, block * count + index[label]] += 1
    positive = index.get("1")

    def figure(sums: Numbers) -> Numbers:
        blocks = sums.reshape(*sums.shape[:-1], 3, count)
        return _COUNTED[metric](blocks[..., 0, :], blocks[..., 1, :], blocks[..., 2, :], positive)

    return Sums(values, figure)


def _accuracy(common: Numbers, predicted: Numbers, right: Numbers, positive: int | None) -> Numbers:
    return common.sum(-1) / np.maximum(right.sum(-1), 1)


def _micro_f1(common: Numbers, predicted: Numbers, right: Numbers, positive: int | None) -> Numbers:
    return 2 * common.sum(-1) / np.maximum(predicted.sum(-1) + right.sum(-1), 1)


def _macro_f1(common: Numbers, predicted: Numbers, right: Numbers, positive: int | None) -> Numbers:
    scores, occurs = 2 * common / np.maximum(predicted + right, 1), right > 0
    return (scores * occurs).sum(-1) / np.maximum(occurs.sum(-1), 1)


def _positive_f1(
    common: Numbers, predicted: Numbers, right: Numbers, positive: int | None
) -> Numbers:
    if positive is None:
        return np.zeros(common.shape[:-1])
    return (
        2 * common[..., positive] / np.maximum(predicted[..., positive] + right[..., positive], 1)
    )


def _matthews(common: Numbers, predicted: Numbers, right: Numbers, positive: int | None) -> Numbers:
    """Gorodkin 2004, for any number of classes."""
    total = right.sum(-1)
    spread = (total**2 - (predicted**2).sum(-1)) * (total**2 - (right**2).sum(-1))
    lead = common.sum(-1) * total - (predicted * right).sum(-1)
    return lead / np.sqrt(np.where(spread > 0, spread, np.inf))


_COUNTED: dict[str, Callable[[Numbers, Numbers, Numbers, int | None], Numbers]] = {
    "accuracy": _accuracy,
    "micro-f1": _micro_f1,
    "macro-f1": _macro_f1,
    "positive-f1": _positive_f1,
    "matthews": _matthews,
}


def _of_queries(
    task: Task, metric: str, examples: Examples, predictions: Sequence[Prediction]
) -> Sums:
    """A mean over queries, which are the units; those without a relevant text have no score."""
    answer: Any = task.answer
    queries = answer.queries(examples, predictions)
    scored = [query for query in queries if (query.relevance > 0).any()]
    alone = [RANKINGS[metric]([query]) for query in scored] or [0.0]
    return Sums(np.stack([alone, np.ones(len(alone))], 1), _ratio)
