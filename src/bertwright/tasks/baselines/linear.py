"""Linear models as scikit-learn fits them, on any features: logistic regression for classes and
labels, ridge regression for numbers."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from bertwright.tasks.answers import Prediction
from bertwright.tasks.baselines.baseline import Matrix

LinearKind = Literal["class", "labels", "number"]

KIND_OF: dict[str, LinearKind] = {
    "class": "class",
    "cloze": "class",
    "tags": "class",
    "labels": "labels",
    "number": "number",
}
"""By the kind of answer, for those that a linear model gives."""

METHOD = {
    "class": "logistic regression",
    "labels": "logistic regression",
    "number": "ridge regression",
}

SURE = 20.0
"""The logit of what is so in all training examples."""


class Linear(NamedTuple):
    """Coefficients (K, F) and intercepts (K,)."""

    coefficients: Matrix
    intercepts: Matrix

    def outputs(self, features: Any) -> Matrix:
        """Return (N, K) of features (N, F), which may be sparse."""
        return np.asarray(features @ self.coefficients.T + self.intercepts, np.float32)


def fit_linear(
    kind: LinearKind, features: Any, right: Sequence[Any], labels: Sequence[str]
) -> Linear:
    """Fit one output for every label, or one for numbers, with the settings that are usual."""
    from sklearn.linear_model import LogisticRegression, Ridge

    def fitted(model: Any, wanted: Sequence[Any]) -> tuple[Matrix, Matrix]:
        model.fit(features, wanted)
        coefficients = np.atleast_2d(model.coef_).astype(np.float32)
        return coefficients, np.atleast_1d(model.intercept_).astype(np.float32)

    width = features.shape[1]
    if kind == "number":
        return Linear(*fitted(Ridge(), right))
    if kind == "labels":
        rows, intercepts = np.zeros((len(labels), width), np.float32), np.zeros(len(labels))
        for number, label in enumerate(labels):
            has = [label in some for some in right]
            if len(set(has)) < 2:
                intercepts[number] = SURE if has[0] else -SURE
                continue
            rows[number : number + 1], intercepts[number : number + 1] = fitted(
                LogisticRegression(max_iter=1000), has
            )
        return Linear(rows, intercepts.astype(np.float32))
    seen = sorted(set(right))
    rows = np.zeros((len(labels), width), np.float32)
    intercepts = np.full(len(labels), -SURE, np.float32)
    places = [labels.index(label) for label in seen]
    if len(seen) == 1:
        intercepts[places] = SURE
        return Linear(rows, intercepts)
    rows_seen, offsets = fitted(LogisticRegression(max_iter=1000), right)
    if len(seen) == 2:  # one row, which says the second of them
        rows_seen, offsets = (
            np.concatenate([-rows_seen, rows_seen]) / 2,
            np.concatenate([-offsets, offsets]) / 2,
        )
    rows[places], intercepts[places] = rows_seen, offsets
    return Linear(rows, intercepts)


def answers(kind: LinearKind, outputs: Matrix, labels: Sequence[str]) -> list[Prediction]:
    """Return the answers that outputs (N, K) stand for."""
    if kind == "number":
        return [Prediction(float(value)) for value in outputs[:, 0]]
    if kind == "labels":
        named = np.array(labels, object)
        return [Prediction(tuple(cast(list[str], named[row > 0].tolist()))) for row in outputs]
    return [Prediction(labels[int(number)]) for number in outputs.argmax(1)]
