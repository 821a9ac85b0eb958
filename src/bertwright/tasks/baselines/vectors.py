"""A linear model of scikit-learn's on what the head of a frozen encoder reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, cast

import numpy as np

from bertwright.tasks.answers import Prediction
from bertwright.tasks.baselines.baseline import Baseline, Matrix
from bertwright.tasks.baselines.linear import (
    KIND_OF,
    METHOD,
    Linear,
    LinearKind,
    answers,
    fit_linear,
)
from bertwright.tasks.formats.examples import Examples, TaggedWords
from bertwright.tasks.task import Task

MAX_WORDS = 20_000
"""Of tagged sentences."""


@dataclass(frozen=True)
class VectorsLinear(Baseline):
    """Logistic or ridge regression on vectors in standard form, of windows of a text on their
    mean."""

    kind: ClassVar[str] = "vectors-linear"
    reads_vectors: ClassVar[bool] = True
    answer: LinearKind
    labels: list[str]
    coefficients: Matrix
    intercepts: Matrix
    name: str
    trained_on: int

    @staticmethod
    def fit(task: Task, examples: Examples, vectors: Sequence[Matrix]) -> "VectorsLinear":
        """Fit the model; ``vectors`` (k, W) are those of each example."""
        kind, labels = KIND_OF[task.answer.own_kind()], [*task.labels]
        if task.answer.own_kind() == "tags":
            sizes = np.cumsum([len(of) for of in vectors])
            number = max(int(np.searchsorted(sizes, MAX_WORDS)), 1)
            examples, vectors = examples[:number], vectors[:number]
            right = [tag for e in examples for tag in task.answer.labels_in(e)]
            features = np.concatenate(vectors)
        else:
            right = [task.answer.reference(example) for example in examples]
            features = np.stack([of.mean(0) for of in vectors])
        centre, spread = features.mean(0), features.std(0)
        spread = np.where(spread > 0, spread, 1.0).astype(np.float32)
        linear = fit_linear(kind, (features - centre) / spread, right, labels)
        coefficients = linear.coefficients / spread
        intercepts = linear.intercepts - coefficients @ centre
        name = f"{METHOD[kind]} on the same vectors"
        return VectorsLinear(kind, labels, coefficients, intercepts, name, len(examples))

    def predict(
        self, examples: Examples, vectors: Sequence[Matrix] | None = None
    ) -> list[Prediction]:
        assert vectors is not None, "vectors are what it reads"
        linear = Linear(self.coefficients, self.intercepts)
        if not examples or not isinstance(examples[0], TaggedWords):
            features = np.stack([of.mean(0) for of in vectors])
            return answers(self.answer, linear.outputs(features), self.labels)
        tags = [
            cast(str, prediction.answer)
            for prediction in answers(
                self.answer, linear.outputs(np.concatenate(vectors)), self.labels
            )
        ]
        bounds = pairwise([0, *np.cumsum([len(of) for of in vectors]).tolist()])
        return [Prediction(tuple(tags[start:stop])) for start, stop in bounds]
