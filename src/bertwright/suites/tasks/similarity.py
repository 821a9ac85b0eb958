"""Similarity of two texts by the cosine of their vectors, without training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.suites.tasks.suite_task import (
    Predictions,
    PreparedTask,
    SuiteTask,
    TaskName,
    require_data,
)
from bertwright.tasks.baselines.tf_idf import TfIdfFeatures
from bertwright.tasks.catalogue import find_split_file, find_task
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.metrics.metrics import SPEARMAN, MetricSums
from bertwright.tasks.outputs.vectors.text_vectors import normalise

TF_IDF_COSINE = "cosine of TF-IDF vectors"


@dataclass(frozen=True)
class PreparedSimilarity(PreparedTask):
    """Pairs of texts with the similarity that people see; a prediction is a cosine."""

    examples: Sequence[Example]

    @property
    def metric(self) -> str:
        return "Spearman correlation"

    @property
    def method(self) -> str:
        return "zero-shot: cosine of the two text vectors"

    @property
    def unit(self) -> str:
        return "text pairs"

    @property
    def words_method(self) -> str | None:
        return TF_IDF_COSINE

    @property
    def num_examples(self) -> int:
        return len(self.examples)

    @property
    def firsts(self) -> list[str]:
        """The first text of each pair."""
        return [example.text for example in self.examples]

    @property
    def seconds(self) -> list[str]:
        """The second text of each pair."""
        return [example.pair or "" for example in self.examples]

    @property
    def references(self) -> list[float]:
        """The similarity that people see."""
        return [float(str(example.label)) for example in self.examples]

    def predict(self, model: TextModel) -> Predictions:
        first, second = (normalise(model.embed(texts)) for texts in (self.firsts, self.seconds))
        return (first.astype("float64") * second).sum(1).tolist()

    def predict_from_words(self) -> Predictions:
        features = TfIdfFeatures.fit([*self.firsts, *self.seconds])
        return features.cosines(self.firsts, self.seconds).tolist()

    def sums(self, predictions: Predictions) -> MetricSums:
        return SPEARMAN.sums(self.references, predictions)


class SimilarityTask(SuiteTask):
    """The similarity of text pairs.

    Attributes:
        task: a task of text pairs with a number, such as ``sts-b`` or ``sick-relatedness``.
        folder: folder with its development file.
    """

    kind: Literal["similarity"] = "similarity"
    task: TaskName
    folder: str

    def files(self, data: Path) -> list[Path]:
        return [find_split_file(require_data(data, self.folder), "dev")]

    def prepare(self, data: Path) -> PreparedTask:
        task = find_task(self.task)
        if task.output_type.label_kind != "number":
            raise UserError(f"task {self.task} has no numbers: choose a task such as sts-b")
        examples = task.read_examples(self.files(data)[0])[: self.max_examples]
        pairs = [e for e in examples if isinstance(e, Example) and e.pair is not None]
        if len(pairs) < max(len(examples), 1):
            raise UserError(f"task {self.task} has no pairs of texts: choose a task such as sts-b")
        return PreparedSimilarity(pairs)
