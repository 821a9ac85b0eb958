"""Classes of texts and pairs by logistic regression on the vectors of a frozen model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.suites.tasks.labelled import LabelledSuiteTask, LabelledTask
from bertwright.suites.tasks.suite_task import Predictions, PreparedTask
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.outputs import ClassificationOutput

FloatMatrix = NDArray[np.float32]
Embed = Callable[[Sequence[str]], FloatMatrix]
"""Maps N texts to vectors (N, D)."""

INVERSE_L2_GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates for C of the logistic regression."""

DEFAULT_INVERSE_L2 = 1e-2
"""C where a class has too few examples for cross-validation."""

SCORING = {"matthews": "matthews_corrcoef", "macro-f1": "f1_macro"}
"""scikit-learn's names of the metrics that select C; others leave it to the log loss."""

NUM_FOLDS = 5


@dataclass(frozen=True)
class PreparedProbe(LabelledTask):
    """Texts with classes; a prediction is a class."""

    @property
    def method(self) -> str:
        of_pairs = ", of pairs |u - v| and u * v" if self._has_pairs else ""
        return (
            f"frozen probe: logistic regression on text vectors{of_pairs}, "
            f"{len(self.train):,} training examples"
        )

    def predict(self, model: TextModel) -> Predictions:
        return self.predict_from_vectors(model.embed)

    def predict_from_vectors(self, embed: Embed) -> Predictions:
        """Return the predictions of a probe on the vectors of texts."""
        features = probe_features(embed, self.train)
        classifier = fit_probe(features, self._references(self.train), self.metric)
        return classifier.predict(probe_features(embed, self.dev)).tolist()

    def _references(self, examples: Examples) -> list[str]:
        return [str(self.task.output_type.reference(example)) for example in examples]

    @property
    def _has_pairs(self) -> bool:
        return getattr(self.dev[0], "pair", None) is not None


class ProbeTask(LabelledSuiteTask):
    """Classes of texts or text pairs, by a probe on a frozen model."""

    kind: Literal["probe"] = "probe"

    def prepare(self, data: Path) -> PreparedTask:
        task, train, dev = self.read_examples(data)
        if not isinstance(task.output_type, ClassificationOutput):
            raise UserError(f"task {task.name} has no classes: choose kind fine-tuning")
        return PreparedProbe(task, train, dev)


def probe_features(embed: Embed, examples: Sequence[Any]) -> FloatMatrix:
    """Return the vectors (N, D) of texts; of pairs (u, v), |u - v| and u * v (N, 2 D).

    Source: Conneau and Kiela 2018, section 3.
    """
    first = embed([example.text for example in examples])
    if not isinstance(examples[0], Example) or examples[0].pair is None:
        return first
    second = embed([example.pair for example in examples])
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def fit_probe(features: FloatMatrix, labels: Sequence[str], metric: str = "") -> Any:
    """Return logistic regression on standardised features.

    Cross-validation selects C by the log loss, or by a metric that counts rare classes as much as
    frequent ones: the lowest loss may be that of always predicting the most frequent class. Errors:
    UserError if all labels are equal.
    """
    if len(set(labels)) == 1:
        raise UserError(
            f"all {len(labels)} training examples of the probe have the class {labels[0]!r}: raise "
            f"train_examples"
        )
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=DEFAULT_INVERSE_L2, max_iter=1000))
    smallest = int(np.unique(labels, return_counts=True)[1].min())
    if smallest >= 2:
        folds = StratifiedKFold(min(NUM_FOLDS, smallest), shuffle=True, random_state=0)
        grid = {"logisticregression__C": INVERSE_L2_GRID}
        probe = GridSearchCV(probe, grid, scoring=SCORING.get(metric, "neg_log_loss"), cv=folds)
    return probe.fit(features, labels)
