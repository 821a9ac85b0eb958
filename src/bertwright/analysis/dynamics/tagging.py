"""Part-of-speech tagging as the fine-tuning task that analyses use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.requirements import missing_trees
from bertwright.analysis.core.result import AnalysisFinding, BaselineValue, interval_finding
from bertwright.analysis.probing.layer_probe import majority_baseline
from bertwright.core.significance import FloatArray, bootstrap_runs, split_halves
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.task import Task

MIN_SENTENCES = 10
"""Minimum number of sentences."""

TAGGING_TASK = tagging_task("parts of speech", metrics=("accuracy",))

FINE_TUNING_SETTINGS: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 8,
    "calibrate": False,
    "compile": False,
}
"""Default settings of fine-tuning."""

LEARNING_RATE_FACTORS = (1, 4, 16)
"""Multiples of the default learning rate to try: with few steps, a higher one is needed."""

NUM_RUNS = 6
"""Minimum number of runs that can decide: with fewer, chance alone puts all of them on one side
more than once in twenty times."""


@dataclass(frozen=True)
class TaggingData:
    """Tagged sentences for training, for selecting the epoch, and for testing."""

    train: Sequence[TaggedSentence]
    validation: Sequence[TaggedSentence]
    test: Sequence[TaggedSentence]

    @staticmethod
    def from_inputs(inputs: AnalysisInput) -> "TaggingData":
        """Split the sentences: half for testing; of the other half, every fifth for validation."""
        train, test = split_halves(len(inputs.texts), inputs.seed)
        tagged = [TaggedSentence(text.words, text.tags) for text in inputs.texts]
        return TaggingData(
            [tagged[n] for at, n in enumerate(train) if at % 5],
            [tagged[n] for n in train[::5]],
            [tagged[n] for n in test],
        )

    @property
    def task_data(self) -> tuple[Task, Sequence[TaggedSentence], Sequence[TaggedSentence]]:
        """The task with its labels, training and validation sentences."""
        return TAGGING_TASK.with_labels_from(self.train), self.train, self.validation

    def fine_tune(self, model: TextModel, seed: int, **settings: Any) -> FineTunedModel:
        """Fine-tune a model for part-of-speech tagging."""
        return self._finetune(model, seed, settings).model

    def _finetune(
        self, model: TextModel, seed: int, settings: Mapping[str, Any]
    ) -> FineTuningResult:
        options: dict[str, Any] = {**FINE_TUNING_SETTINGS, **settings, "seed": seed}
        return finetune(model, TAGGING_TASK, train=self.train, dev=self.validation, **options)

    def with_best_learning_rate(
        self, model: TextModel, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Add the learning rate with the best validation score to the settings."""
        config = FineTuningConfig.from_settings({**FINE_TUNING_SETTINGS, **settings})
        default = config.learning_rate_for(model.model.recipe)
        scores = {
            rate: self._finetune(model, 0, {**settings, "learning_rate": rate}).best.score
            for rate in (factor * default for factor in LEARNING_RATE_FACTORS)
        }
        return {**settings, "learning_rate": max(scores, key=lambda rate: scores[rate])}

    def num_correct_by_seed(self, models: Iterable[TextModel], **settings: Any) -> FloatArray:
        """Fine-tune each model with its own seed; return the number of correct words, (R, N)."""
        tuned = (self.fine_tune(model, seed, **settings) for seed, model in enumerate(models))
        return np.array([self.num_correct(one) for one in tuned])

    def num_correct(self, fine_tuned: FineTunedModel) -> FloatArray:
        """Return the number of correct words of each test sentence, (N,)."""
        predictions = [prediction.value for prediction in fine_tuned.predict(self.test)]
        return np.array(
            [
                sum(a == b for a, b in zip(sentence.tags or (), tags, strict=True))  # type: ignore[arg-type]
                for sentence, tags in zip(self.test, predictions, strict=True)
            ],
            np.float64,
        )

    @property
    def num_words(self) -> FloatArray:
        """Number of words of each test sentence, (N,)."""
        return np.array([len(sentence.words) for sentence in self.test], np.float64)

    @property
    def majority_baseline(self) -> BaselineValue:
        """The test accuracy of the most frequent training tag."""
        return majority_baseline(_tags(self.train), _tags(self.test))

    @property
    def validation_majority_fraction(self) -> float:
        """Fraction of validation words with the most frequent tag."""
        _, counts = np.unique(_tags(self.validation), return_counts=True)
        return float(counts.max() / counts.sum())


def missing_tagging_data(inputs: AnalysisInput) -> str | None:
    """Return why no tagger can be trained on the texts, or None if one can."""
    if (reason := missing_trees(inputs)) is not None:
        return reason
    if len(inputs.texts) < MIN_SENTENCES:
        return f"it needs {MIN_SENTENCES} sentences or more"
    if len(set(_tags(TaggingData.from_inputs(inputs).train))) < 2:
        return "all training words have the same part of speech: give more sentences"
    return None


def _tags(sentences: Sequence[TaggedSentence]) -> list[Any]:
    return [tag for sentence in sentences for tag in sentence.tags or ()]


def comparison_findings(
    num_correct: Mapping[str, FloatArray],
    comparisons: Mapping[str, tuple[str, str]],
    tagging: TaggingData,
    seed: int,
) -> list[AnalysisFinding]:
    """Return the accuracy of each variant, (R, N) counts, and the difference of each pair."""
    num_words, baseline = tagging.num_words, tagging.majority_baseline
    return [
        *(
            finding_over_runs(name, runs, num_words, seed, baseline)
            for name, runs in num_correct.items()
        ),
        *(
            finding_over_runs(metric, num_correct[a] - num_correct[b], num_words, seed)
            for metric, (a, b) in comparisons.items()
        ),
    ]


def finding_over_runs(
    metric: str,
    num_correct: FloatArray,
    num_words: FloatArray,
    seed: int,
    baseline: BaselineValue | None = None,
) -> AnalysisFinding:
    """Return the fraction of correct words, with runs as units.

    ``num_correct`` (R, N) counts correct words, or is a difference of such counts; ``num_words`` is
    (N,). The note has the spread over runs.
    """
    runs, note = num_correct.sum(1) / num_words.sum(), None
    if len(runs) > 1:
        deviation = f"sd {runs.std(ddof=1):.4f} over {len(runs)} runs"
        note = f"{deviation}, {runs.min():.4f} to {runs.max():.4f}"
    interval = bootstrap_runs(num_correct, num_words, seed=seed)
    return interval_finding(metric, interval, baseline=baseline, note=note)
