"""Tasks with a training and a development file: their examples, scores and baselines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.suites.tasks.suite_task import (
    Predictions,
    PreparedTask,
    SuiteTask,
    TaskName,
    require_data,
)
from bertwright.tasks.baselines.baseline import TaskBaseline
from bertwright.tasks.baselines.fit_baselines import fit_baselines
from bertwright.tasks.baselines.frequency import ConstantBaseline
from bertwright.tasks.catalogue import find_split_file, find_task, table_task
from bertwright.tasks.data.splits import stratified_order
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.metrics.metrics import MetricSums
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task

UNITS = {"TaggedSentence": "sentences", "ExtractiveQuestion": "questions"}


@dataclass(frozen=True)
class LabelledTask(PreparedTask):
    """A task with its training examples and the examples that are scored."""

    task: Task
    train: Examples
    dev: Examples

    @property
    def metric(self) -> str:
        return self.task.metrics[0]

    @property
    def num_examples(self) -> int:
        return len(self.dev)

    @property
    def unit(self) -> str:
        has_pairs = getattr(self.dev[0], "pair", None) is not None
        default = "text pairs" if has_pairs else "texts"
        return UNITS.get(self.task.output_type.example_type.__name__, default)

    @property
    def chance(self) -> float | None:
        constant = next((b for b in self._baselines if isinstance(b, ConstantBaseline)), None)
        if constant is None:
            return None
        return self.task.score(self.dev, constant.predict(self.dev))[self.metric]

    @property
    def words_method(self) -> str | None:
        return None if self._words_baseline is None else self._words_baseline.name

    def predict_from_words(self) -> Predictions:
        assert self._words_baseline is not None, "there is a words_method"
        return prediction_values(self._words_baseline.predict(self.dev))

    def sums(self, predictions: Predictions) -> MetricSums:
        values = [Prediction(tuple(v) if isinstance(v, list) else v) for v in predictions]
        return self.task.output_type.metric_sums(self.metric, self.dev, values)

    @property
    def _words_baseline(self) -> TaskBaseline | None:
        others = (b for b in self._baselines if not isinstance(b, ConstantBaseline))
        return next(others, None)

    @cached_property
    def _baselines(self) -> Sequence[TaskBaseline]:
        return fit_baselines(self.task, self.train)


def prediction_values(predictions: Sequence[Prediction]) -> list[Any]:
    """Return the values of predictions as JSON keeps them."""
    return [list(p.value) if isinstance(p.value, tuple) else p.value for p in predictions]


class TextColumns(Settings):
    """The columns of a table of texts, or of pairs of texts, with a class."""

    text: str = "text"
    pair: str | None = None
    label: str = "label"


class LabelledSuiteTask(SuiteTask):
    """A task with a training and a development file.

    Attributes:
        task: name of the task, such as ``sst-2``.
        columns: in place of ``task``, the columns of your own tables.
        folder: folder with both files.
        train_examples: number of training examples, a sample with every label as often as in all;
            None for all.
    """

    task: TaskName | None = None
    columns: TextColumns | None = None
    folder: str
    train_examples: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _require_task(self) -> Self:
        if (self.task is None) == (self.columns is None):
            raise ValueError("needs either a task or the columns of a table")
        return self

    @property
    def labelled_task(self) -> Task:
        """The task that the files hold."""
        if self.columns is None:
            return find_task(str(self.task))
        columns = Columns(self.columns.text, self.columns.pair, self.columns.label)
        return table_task(self.title or self.folder, columns)

    def files(self, data: Path) -> list[Path]:
        folder, keyword = require_data(data, self.folder), self.labelled_task.reader.file_keyword
        return [find_split_file(folder, split, keyword) for split in ("train", "dev")]

    def read_examples(self, data: Path) -> tuple[Task, Examples, Examples]:
        """Return the task with its labels, the training examples and those that are scored."""
        train_file, dev_file = self.files(data)
        task, train, dev = TaskData(
            self.labelled_task, train=train_file, dev=dev_file
        ).load_splits()
        if not dev:
            raise UserError(f"{dev_file} holds no examples")
        if self.train_examples is not None:
            order = stratified_order(task, train, 0)
            train = [train[index] for index in sorted(order[: self.train_examples])]
        return task, train, dev[: self.max_examples]
