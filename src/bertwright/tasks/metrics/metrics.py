"""Metrics of predictions; each output type lists those that it supports.

Every metric takes references and predictions, equally many, and returns a float; higher is better.
An undefined metric (a correlation with a constant, F1 without a case) is 0.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np

MetricFunction = Callable[[Sequence[Any], Sequence[Any]], float]


def accuracy(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Return the fraction of correct predictions."""
    return float(_sklearn().accuracy_score(references, predictions))


def macro_f1(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Return the mean F1 of the classes that occur in the references.

    A class that is predicted but not in the references only lowers the F1 of others. So the classes
    are the same for all models, and models can be compared.
    """
    classes = sorted(set(references))
    return _f1(references, predictions, labels=classes, average="macro")


def micro_f1(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Return the F1 of all decisions together; with one class per example this is the accuracy."""
    return _f1(references, predictions, average="micro")


def positive_f1(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Return the F1 of the class ``1``, as GLUE scores paraphrases."""
    return _f1(references, predictions, labels=["1"], average="macro")


def matthews(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Return Matthews' correlation, from -1 to 1 (Matthews 1975); 0 is chance."""
    if len(set(references)) < 2 or len(set(predictions)) < 2:
        return 0.0
    return float(_sklearn().matthews_corrcoef(references, predictions))


def pearson(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return Pearson's correlation."""
    return _correlation("pearsonr", references, predictions)


def spearman(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return Spearman's rank correlation; ties share their mean rank."""
    return _correlation("spearmanr", references, predictions)


def negative_mean_squared_error(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return the negative mean squared error."""
    return -float(_sklearn().mean_squared_error(references, predictions))


def per_word(metric: MetricFunction) -> MetricFunction:
    """Return a metric of classes as a metric of tags: every word counts once."""

    def score(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
        return metric(list(chain(*references)), list(chain(*predictions)))

    return score


def multi_label_f1(average: Literal["micro", "macro"]) -> MetricFunction:
    """Return a multi-label F1: of all decisions, or the mean over the reference classes."""

    def score(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
        true, predicted = Counter(chain(*references)), Counter(chain(*predictions))
        correct = Counter(chain(*map(_common, references, predictions)))
        if average == "micro":
            return 2 * correct.total() / max(true.total() + predicted.total(), 1)
        scores = [2 * correct[name] / (true[name] + predicted[name]) for name in true]
        return sum(scores) / max(len(scores), 1)

    return score


def subset_accuracy(
    references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> float:
    """Return the fraction of texts whose set of classes is predicted exactly."""
    correct = [set(a) == set(b) for a, b in zip(references, predictions, strict=True)]
    return sum(correct) / len(correct)


def _common(a: Sequence[str], b: Sequence[str]) -> set[str]:
    return set(a) & set(b)


def _f1(references: Sequence[str], predictions: Sequence[str], **settings: Any) -> float:
    options: dict[str, Any] = {"zero_division": 0, **settings}
    return float(_sklearn().f1_score(references, predictions, **options))


def _correlation(name: str, references: Sequence[float], predictions: Sequence[float]) -> float:
    if len(references) < 2 or np.ptp(references) == 0 or np.ptp(predictions) == 0:
        return 0.0
    from scipy import stats

    correlation: Callable[..., Any] = getattr(stats, name)
    value = float(correlation(references, predictions).statistic)
    return value if math.isfinite(value) else 0.0


def _sklearn() -> Any:
    """Import scikit-learn's metrics lazily: a model loads without them."""
    from sklearn import metrics

    return metrics
