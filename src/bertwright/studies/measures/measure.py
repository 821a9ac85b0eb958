"""The axis of measures: named metrics of a trained arm."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertwright.core.config import Config
from bertwright.data.shards.dataset import Dataset
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.corpora import CorpusFolder

Metrics = Mapping[str, float]

ACCURACIES = ("accuracy", "f1")
"""Endings of the names of metrics that lie between 0 and 1."""


@dataclass(frozen=True)
class TrainedArm:
    """An arm trained with one seed, with its data."""

    folder: Path
    data: Dataset
    corpus: CorpusFolder
    seed: int

    def text_model(self) -> TextModel:
        """Return the model in float32."""
        return TextModel(*load_model(self.folder), "float32")


class Measure(Config):
    """The axis of measures; ``arms`` are the arms to measure, by default all."""

    arms: tuple[str, ...] | None = None

    def missing_input(self, corpus: CorpusFolder) -> str | None:
        """Describe a missing input; None if there is none."""
        return None

    def check(self, recipe: Recipe, data: Dataset) -> None:
        """Raise UserError if the measure does not fit models of a recipe or a data set."""

    def input_files(self, corpus: CorpusFolder) -> list[Path]:
        """Return the files that the metrics depend on, besides the data set."""
        return []

    def bounds_of(self, metric: str) -> tuple[float, float] | None:
        """Return the lowest and the highest value of a metric; None if they are unknown."""
        return (0.0, 1.0) if metric.endswith(ACCURACIES) else None

    def compute(self, arm: TrainedArm) -> Metrics:
        """Return the metrics of a trained arm."""
        raise TypeError(f"{type(self).__name__} is an axis, not a measure")
