"""``EncoderClassifier`` and ``EncoderRegressor``: a class or a number for a text or a pair."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_array, check_consistent_length
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bertwright.sklearn.fine_tuned_estimator import FineTunedEstimator
from bertwright.sklearn.input_tags import accept_texts
from bertwright.sklearn.text_rows import TextRow, as_examples, read_rows
from bertwright.tasks.outputs import ClassificationOutput, Prediction, RegressionOutput
from bertwright.tasks.outputs.output_type import OutputType
from bertwright.tasks.task import Task


class SequenceEstimator(FineTunedEstimator):
    """An estimator with one output for each text or pair of texts.

    ``X`` holds N texts, or is a table: two columns are the texts of a pair, the cells of more are
    joined to one text.
    """

    def _fit_rows(self, task: Task, rows: Sequence[TextRow], labels: Sequence[str | float]) -> None:
        examples = [
            replace(example, label=label)
            for example, label in zip(as_examples(rows), labels, strict=True)
        ]
        self._fine_tune(task, examples, [text for row in rows for text in row])

    def _predict_rows(self, X: Any) -> list[Prediction]:  # noqa: N803
        check_is_fitted(self)
        return self.model_.predict(as_examples(read_rows(self, X, reset=False)))

    def __sklearn_tags__(self) -> Tags:
        return accept_texts(super().__sklearn_tags__())


class EncoderClassifier(ClassifierMixin, SequenceEstimator):
    """A classifier of texts or pairs of texts.

    ``classes_`` (K,) are the classes in the order of probabilities.
    """

    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Fine-tune on texts with their classes ``y`` (N,).

        Errors: ValueError for less than two classes, and for ``y`` of another length.
        """
        rows = read_rows(self, X, reset=True, min_rows=2)
        y = column_or_1d(_required(self, y), warn=True)
        check_consistent_length(rows, y)
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, and y has one class: "
                f"{self.classes_[0]!r}"
            )
        labels = tuple(map(str, range(len(self.classes_))))
        task = _task(ClassificationOutput(stride=self.stride), labels)
        self._fit_rows(task, rows, [labels[n] for n in indices])
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probabilities (N, K) of all classes."""
        probabilities = [p.probabilities for p in self._predict_rows(X)]
        return np.array([[*p.values()] for p in probabilities if isinstance(p, dict)], np.float64)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class of each text (N,)."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]


class EncoderRegressor(RegressorMixin, SequenceEstimator):
    """A regressor of texts or pairs of texts."""

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Fine-tune on texts with numbers ``y`` (N,).

        Errors: ValueError for numbers that are not finite, and for ``y`` of another length.
        """
        rows = read_rows(self, X, reset=True, min_rows=2)
        y = column_or_1d(_required(self, y), warn=True)
        y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
        check_consistent_length(rows, y)
        metrics = ("negative-mean-squared-error",)
        task = _task(RegressionOutput(stride=self.stride), metrics=metrics)
        self._fit_rows(task, rows, y.astype(float).tolist())
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return a number for each text (N,)."""
        return np.array([prediction.value for prediction in self._predict_rows(X)], np.float64)


def _task(
    output_type: OutputType, labels: tuple[str, ...] = (), metrics: tuple[str, ...] = ()
) -> Task:
    return Task("texts", output_type, labels=labels, metrics=metrics)


def _required(estimator: Any, y: Any) -> Any:
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y "
            f"is None"
        )
    return y
