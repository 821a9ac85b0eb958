"""The examples of a task: their sources, and checks on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.data.hub.reference import HubDataset
from bertwright.tasks.catalogue import find_split_file, find_task
from bertwright.tasks.data.hub_splits import hub_split_file
from bertwright.tasks.data.split_files import SplitName
from bertwright.tasks.data.splits import hold_out
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task

ExamplesOrFile = Examples | Path | str
"""Examples, or the file that holds them."""


@dataclass(frozen=True)
class TaskData:
    """A task, and a folder with its splits, or its splits as files or examples.

    The folder may be a data set on the Hub: ``hf:owner/name`` or ``hf:owner/name/config``.
    """

    task: Task | str
    folder: Path | str | None = None
    train: ExamplesOrFile | None = None
    dev: ExamplesOrFile | None = None

    def load_training_examples(self) -> tuple[Task, Examples]:
        """Return the task with its labels and all training examples, without a held-out part."""
        task = find_task(self.task) if isinstance(self.task, str) else self.task
        train = self._training_source(task)
        if train is None:
            raise UserError("no training data: give --data DIR, or --train FILE")
        examples = _load_examples(task, train)
        task.require_labels(examples, "training")
        return task.with_labels_from(examples), examples

    def _training_source(self, task: Task) -> ExamplesOrFile | None:
        if self.folder is not None and self.train is None:
            return split_file(task, self.folder, "train")
        return self.train

    def load_splits(self) -> tuple[Task, Examples, Examples]:
        """Return the task with its labels, its training and its development examples."""
        task, train = self.load_training_examples()
        source = self.dev
        if source is None and self.folder is not None:
            source = split_file(task, self.folder, "dev")
        if source is None:
            return task, *hold_out(task, train)
        if isinstance(source, str | Path) and _is_same_file(self._training_source(task), source):
            raise UserError(f"{source} is the training file: give another with --dev, or none")
        dev = _load_examples(task, source)
        task.require_labels(dev, "development")
        task.require_metrics_defined(dev)
        return task, train, dev


def split_file(task: Task, folder: Path | str, split: SplitName) -> Path | None:
    """Return the file of a split in a folder, or of a data set on the Hub.

    None if a data set on the Hub has no development split. Errors: UserError if a folder has no
    such file, or several.
    """
    if HubDataset.is_named(folder):
        return hub_split_file(task, HubDataset.parse(folder), split)
    return find_split_file(Path(folder), split, task.reader.file_keyword)


def load_tasks(task_data: Sequence[TaskData]) -> list[tuple[Task, Examples, Examples]]:
    """Load the splits of several tasks, whose names must differ."""
    tasks = [data.load_splits() for data in task_data]
    names = [task.name for task, _, _ in tasks]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two tasks are named {duplicate!r}: rename one of them")
    return tasks


def _load_examples(task: Task, source: ExamplesOrFile) -> Examples:
    return task.read_examples(Path(source)) if isinstance(source, str | Path) else source


def _is_same_file(source: ExamplesOrFile | None, file: Path | str) -> bool:
    """Return whether examples are read from this file."""
    if not isinstance(source, str | Path):
        return False
    return Path(source).exists() and Path(file).exists() and Path(source).samefile(file)
