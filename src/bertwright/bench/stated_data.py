"""The data of a task as plans of comparisons state them."""

from pathlib import Path

from pydantic import Field

from bertwright.axes import Settings
from bertwright.tasks.catalogue import find_part, find_task
from bertwright.tasks.data import TaskData


class StatedData(Settings):
    """A task by name with its folder, in which files may be named (``train``, ``dev``) that their
    names do not tell; of each part the first ``most``, and ``most_dev``, examples are used."""

    task: str
    data: Path
    train: str | None = None
    dev: str | None = None
    most: int | None = Field(default=None, ge=2)
    most_dev: int | None = Field(default=None, ge=2)

    def examples(self, name: str | None = None) -> TaskData:
        """The task, under this name where one is given, with its examples."""
        task = find_task(self.task)
        word = task.reader.file_word
        train = self.data / self.train if self.train else find_part(self.data, "train", word)
        dev = self.data / self.dev if self.dev else find_part(self.data, "dev", word)
        learned, judged = task.read(train)[: self.most], task.read(dev)[: self.most_dev]
        return TaskData(task.named(name or task.name), train=learned, dev=judged)
