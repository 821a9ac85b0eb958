"""Linear models of scikit-learn: logistic regression for labels, ridge for numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np

from bertwright.tasks.baselines.baseline import Features, FloatMatrix, TaskBaseline
from bertwright.tasks.formats.examples import Examples, TaggedSentence
from bertwright.tasks.outputs import (
    MultiLabelOutput,
    NumberInWordsOutput,
    OutputType,
    Prediction,
    RegressionOutput,
)
from bertwright.tasks.task import Task

LinearModelKind = Literal["class", "labels", "number"]


def linear_kind(output_type: OutputType) -> LinearModelKind | None:
    """Return the kind of linear model of an output type, if there is one."""
    if isinstance(output_type, RegressionOutput | NumberInWordsOutput):
        return "number"
    if isinstance(output_type, MultiLabelOutput):
        return "labels"
    return "class" if output_type.has_labels else None


METHOD_NAMES = {
    "class": "logistic regression",
    "labels": "logistic regression",
    "number": "ridge regression",
}

CONSTANT_LABEL_LOGIT = 20.0
"""Logit of a label that occurs in every training example."""


class LinearModel(NamedTuple):
    """Coefficients (K, F) and intercepts (K,)."""

    coefficients: FloatMatrix
    intercepts: FloatMatrix


def fit_linear(
    kind: LinearModelKind, features: Any, references: Sequence[Any], labels: Sequence[str]
) -> LinearModel:
    """Fit one output per label, or a single one for numbers, with default settings."""
    from sklearn.linear_model import LogisticRegression, Ridge

    def fit(model: Any, targets: Sequence[Any]) -> tuple[FloatMatrix, FloatMatrix]:
        model.fit(features, targets)
        coefficients = np.atleast_2d(model.coef_).astype(np.float32)
        return coefficients, np.atleast_1d(model.intercept_).astype(np.float32)

    width = features.shape[1]
    if kind == "number":
        return LinearModel(*fit(Ridge(), references))
    coefficients = np.zeros((len(labels), width), np.float32)
    if kind == "labels":
        intercepts = np.zeros(len(labels))
        for index, label in enumerate(labels):
            has_label = [label in names for names in references]
            if len(set(has_label)) < 2:
                intercepts[index] = CONSTANT_LABEL_LOGIT if has_label[0] else -CONSTANT_LABEL_LOGIT
                continue
            coefficients[index : index + 1], intercepts[index : index + 1] = fit(
                LogisticRegression(max_iter=1000), has_label
            )
        return LinearModel(coefficients, intercepts.astype(np.float32))
    classes = sorted(set(references))
    intercepts = np.full(len(labels), -CONSTANT_LABEL_LOGIT, np.float32)
    indices = [labels.index(label) for label in classes]
    if len(classes) == 1:
        intercepts[indices] = CONSTANT_LABEL_LOGIT
        return LinearModel(coefficients, intercepts)
    weights, offsets = fit(LogisticRegression(max_iter=1000), references)
    if len(classes) == 2:  # one row, for the second class
        weights = np.concatenate([-weights, weights]) / 2
        offsets = np.concatenate([-offsets, offsets]) / 2
    coefficients[indices], intercepts[indices] = weights, offsets
    return LinearModel(coefficients, intercepts)


@dataclass(frozen=True)
class LinearBaseline(TaskBaseline):
    """A linear model with coefficients (K, F) and intercepts (K,)."""

    output_kind: LinearModelKind
    labels: list[str]
    coefficients: FloatMatrix
    intercepts: FloatMatrix
    name: str
    num_training_examples: int

    def predict_inputs(self, inputs: Any) -> list[Prediction]:
        """Return the predictions for inputs (N, F), which may be sparse."""
        outputs = np.asarray(inputs @ self.coefficients.T + self.intercepts, np.float32)
        if self.output_kind == "number":
            return [Prediction(float(value)) for value in outputs[:, 0]]
        if self.output_kind == "labels":
            names = np.array(self.labels, object)
            return [Prediction(tuple(cast(list[str], names[row > 0].tolist()))) for row in outputs]
        return [Prediction(self.labels[int(index)]) for index in outputs.argmax(1)]


MAX_WORDS = 20_000
"""Maximum number of words of tagged sentences that the model is fitted to."""


@dataclass(frozen=True)
class FeatureLinearBaseline(LinearBaseline):
    """Logistic or ridge regression on standardised features, averaged over windows."""

    kind: ClassVar[str] = "vectors-linear"
    needs_features: ClassVar[bool] = True

    @staticmethod
    def fit(
        kind: LinearModelKind, task: Task, examples: Examples, features: Sequence[FloatMatrix]
    ) -> "FeatureLinearBaseline":
        """Fit the model to the features (k, W) of each example."""
        labels = [*task.labels]
        if task.output_type.example_type is TaggedSentence:
            num_words = np.cumsum([len(words) for words in features])
            number = max(int(np.searchsorted(num_words, MAX_WORDS)), 1)
            examples, features = examples[:number], features[:number]
            references = [tag for e in examples for tag in task.output_type.labels_in(e)]
            inputs = np.concatenate(features)
        else:
            references = [task.output_type.reference(example) for example in examples]
            inputs = np.stack([windows.mean(0) for windows in features])
        mean, std = inputs.mean(0), inputs.std(0)
        std = np.where(std > 0, std, 1.0).astype(np.float32)
        linear = fit_linear(kind, (inputs - mean) / std, references, labels)
        coefficients = linear.coefficients / std
        intercepts = linear.intercepts - coefficients @ mean
        name = f"{METHOD_NAMES[kind]} on the same vectors"
        return FeatureLinearBaseline(kind, labels, coefficients, intercepts, name, len(examples))

    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        assert features is not None, "this baseline needs features"
        if not examples or not isinstance(examples[0], TaggedSentence):
            return self.predict_inputs(np.stack([windows.mean(0) for windows in features]))
        tags = [cast(str, p.value) for p in self.predict_inputs(np.concatenate(features))]
        bounds = pairwise([0, *np.cumsum([len(words) for words in features]).tolist()])
        return [Prediction(tuple(tags[start:stop])) for start, stop in bounds]
