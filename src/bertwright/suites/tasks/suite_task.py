"""The axis of kinds of tasks in a suite, and a task whose examples have been read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from bertwright.core.config import Config
from bertwright.core.errors import UserError
from bertwright.core.files import content_hash
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.metrics.metrics import MetricSums


def _require_known_task(name: str) -> str:
    try:
        find_task(name)
    except UserError as error:
        raise ValueError(str(error)) from None
    return name


TaskName = Annotated[str, AfterValidator(_require_known_task)]
"""The name of a task of the catalogue."""

Predictions = Sequence[Any]
"""One prediction for each example, as JSON keeps it."""


class PreparedTask(ABC):
    """A task with its examples: it predicts with a model, and scores predictions."""

    @property
    @abstractmethod
    def metric(self) -> str:
        """Name of the metric."""

    @property
    @abstractmethod
    def method(self) -> str:
        """How a model predicts: zero-shot, by a probe or fine-tuned, then a colon and details."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What an example is, in the plural."""

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """Number of examples that are scored."""

    @property
    def chance(self) -> float | None:
        """Score without knowledge of the texts; None if it is near 0 or not defined."""
        return None

    @property
    def words_method(self) -> str | None:
        """How words alone predict; None if they cannot."""
        return None

    @abstractmethod
    def predict(self, model: TextModel) -> Predictions:
        """Return the predictions of a model; UserError if it cannot do the task."""

    def predict_from_words(self) -> Predictions:
        """Return the predictions of :attr:`words_method`."""
        raise AssertionError("words predict only if there is a words_method")

    @abstractmethod
    def sums(self, predictions: Predictions) -> MetricSums:
        """Return the sums of the metric over the units that a bootstrap resamples."""

    def parts(self, predictions: Predictions) -> Mapping[str, float]:
        """Return the scores of parts of the examples by name; empty if there are no parts."""
        return {}


class SuiteTask(Config):
    """The axis of kinds of tasks in a suite.

    Attributes:
        title: name in the report; by default the key of the task in its suite.
        ability: heading under which the report shows the task.
        max_examples: largest number of examples that are scored; None for all.
    """

    title: str = ""
    ability: str = "Tasks"
    max_examples: int | None = Field(default=None, ge=2)

    @abstractmethod
    def files(self, data: Path) -> list[Path]:
        """Return the files that the task reads; UserError for one that is missing."""

    @abstractmethod
    def prepare(self, data: Path) -> PreparedTask:
        """Read the examples; UserError for an invalid file."""

    def identity(self, data: Path) -> list[Any]:
        """Return plain data that identify the examples; UserError for a missing file."""
        return [self.model_dump(mode="json"), content_hash(*self.files(data))]


def require_data(data: Path, name: str) -> Path:
    """Return a file or folder of the data folder; UserError if it is missing."""
    path = data / name
    if not path.exists():
        raise UserError(f"missing {name}")
    return path
