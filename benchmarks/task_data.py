"""Data of a task, as the plans of comparisons state it."""

from dataclasses import replace
from pathlib import Path

from pydantic import Field

from bertwright.core.config import Settings
from bertwright.tasks.catalogue import find_split_file, find_task
from bertwright.tasks.data.task_data import TaskData


class TaskDataSettings(Settings):
    """A task with its data folder and limits on the number of examples.

    Attributes:
        train, dev: file names within the folder, where the usual names do not apply.
    """

    task: str
    data: Path
    train: str | None = None
    dev: str | None = None
    max_examples: int | None = Field(default=None, ge=2)
    max_dev_examples: int | None = Field(default=None, ge=2)

    def load_examples(self, name: str | None = None) -> TaskData:
        """Return the task with its examples, renamed to ``name`` if that is given."""
        task = find_task(self.task)
        keyword = task.reader.file_keyword
        train = (
            self.data / self.train if self.train else find_split_file(self.data, "train", keyword)
        )
        dev = self.data / self.dev if self.dev else find_split_file(self.data, "dev", keyword)
        return TaskData(
            replace(task, name=name or task.name),
            train=task.read_examples(train)[: self.max_examples],
            dev=task.read_examples(dev)[: self.max_dev_examples],
        )
