"""How answers are scored; which of these a kind of answer has stands with it.

Every metric takes references and predictions, equally many, and returns a float that is higher the
better. Where a metric is undefined (a correlation with a constant, F1 without a case) it is 0.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np

Metric = Callable[[Sequence[Any], Sequence[Any]], float]


def accuracy(references: Sequence[str], predictions: Sequence[str]) -> float:
    """The share of answers that are right."""
    return float(_sklearn().accuracy_score(references, predictions))


def macro_f1(references: Sequence[str], predictions: Sequence[str]) -> float:
    """F1 of every class that occurs in the references, averaged.

    A class that is predicted but never right has no F1 of its own; it lowers the others'. So the
    average runs over the same classes whoever predicts, and predictors can be compared.
    """
    classes = sorted(set(references))
    return _f1(references, predictions, labels=classes, average="macro")


def micro_f1(references: Sequence[str], predictions: Sequence[str]) -> float:
    """F1 of all decisions together; with one class for each example this is the accuracy."""
    return _f1(references, predictions, average="micro")


def positive_f1(references: Sequence[str], predictions: Sequence[str]) -> float:
    """F1 of the class ``1``, as GLUE scores paraphrases."""
    return _f1(references, predictions, labels=["1"], average="macro")


def matthews(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Matthews' correlation, from -1 to 1 (Matthews 1975); 0 for guessing."""
    if len(set(references)) < 2 or len(set(predictions)) < 2:
        return 0.0
    return float(_sklearn().matthews_corrcoef(references, predictions))


def pearson(references: Sequence[float], predictions: Sequence[float]) -> float:
    """The linear correlation."""
    return _correlation("pearsonr", references, predictions)


def spearman(references: Sequence[float], predictions: Sequence[float]) -> float:
    """The correlation of ranks; ties share their mean rank."""
    return _correlation("spearmanr", references, predictions)


def negative_mean_squared_error(references: Sequence[float], predictions: Sequence[float]) -> float:
    """The mean squared error with its sign turned, so that higher is better."""
    return -float(_sklearn().mean_squared_error(references, predictions))


def over_words(of: Metric) -> Metric:
    """A metric of classes as a metric of tags: every word of every sentence counts once."""

    def score(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
        return of(list(chain(*references)), list(chain(*predictions)))

    return score


def of_sets(average: Literal["micro", "macro"]) -> Metric:
    """F1 over the classes of texts that may have several: of all decisions together, or the mean
    over the classes that occur in the references."""

    def score(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
        right, given, common = (
            Counter(chain(*references)),
            Counter(chain(*predictions)),
            Counter(chain(*map(_common, references, predictions))),
        )
        if average == "micro":
            return 2 * common.total() / max(right.total() + given.total(), 1)
        scores = [2 * common[name] / (right[name] + given[name]) for name in right]
        return sum(scores) / max(len(scores), 1)

    return score


def exact_sets(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """The share of texts of which all classes are right, and no other is said."""
    right = [set(a) == set(b) for a, b in zip(references, predictions, strict=True)]
    return sum(right) / len(right)


def _common(a: Sequence[str], b: Sequence[str]) -> set[str]:
    return set(a) & set(b)


def _f1(references: Sequence[str], predictions: Sequence[str], **over: Any) -> float:
    how: dict[str, Any] = {"zero_division": 0, **over}
    return float(_sklearn().f1_score(references, predictions, **how))


def _correlation(name: str, references: Sequence[float], predictions: Sequence[float]) -> float:
    if len(references) < 2 or np.ptp(references) == 0 or np.ptp(predictions) == 0:
        return 0.0
    from scipy import stats

    of: Callable[..., Any] = getattr(stats, name)
    value = float(of(references, predictions).statistic)
    return value if math.isfinite(value) else 0.0


def _sklearn() -> Any:
    """scikit-learn's metrics, imported when something is scored: a model loads without them."""
    from sklearn import metrics

    return metrics
