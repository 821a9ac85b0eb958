"""The examples of a task: where they come from, and that they can be learned from and judged by."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertwright.errors import UserError
from bertwright.tasks.catalogue import find_part, find_task
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.splitting import held_out
from bertwright.tasks.task import Task

Given = Examples | Path | str
"""Examples, or the file that they stand in."""


@dataclass(frozen=True)
class TaskData:
    """A task, and a folder with its parts, or its parts as files or examples."""

    task: Task | str
    folder: Path | str | None = None
    train: Given | None = None
    dev: Given | None = None

    def all_examples(self) -> tuple[Task, Examples]:
        """The task with its labels, and its training examples, none held out."""
        task = find_task(self.task) if isinstance(self.task, str) else self.task
        train = self._training(task)
        if train is None:
            raise UserError("there is nothing to learn from: give --data DIR, or --train FILE")
        examples = _examples(task, train)
        task.learnable(examples, "training")
        return task.gathered(examples), examples

    def _training(self, task: Task) -> Given | None:
        if self.folder is not None and self.train is None:
            return find_part(Path(self.folder), "train", task.reader.file_word)
        return self.train

    def parts(self) -> tuple[Task, Examples, Examples]:
        """The task with its labels, its training examples, and those that judge."""
        task, learned = self.all_examples()
        dev, learned_from = self.dev, self._training(task)
        if dev is None and self.folder is not None:
            dev = find_part(Path(self.folder), "dev", task.reader.file_word)
        if dev is None:
            learned, judged = held_out(task, learned)
            return task, learned, judged
        if isinstance(dev, str | Path) and _is_of(learned_from, dev):
            raise UserError(f"{dev} is what is learned from: name another with --dev, or none")
        judged = _examples(task, dev)
        task.learnable(judged, "development")
        task.require_scored(judged)
        return task, learned, judged


def parts_of(several: Sequence[TaskData]) -> list[tuple[Task, Examples, Examples]]:
    """The parts of several tasks, which have names of their own."""
    found = [data.parts() for data in several]
    names = [task.name for task, _, _ in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two tasks are named {twice!r}: give one of them another name")
    return found


def _examples(task: Task, given: Given) -> Examples:
    return task.read(Path(given)) if isinstance(given, str | Path) else given


def _is_of(given: Given | None, file: Path | str) -> bool:
    """Whether examples are those of a file."""
    if not isinstance(given, str | Path):
        return False
    return Path(given).exists() and Path(file).exists() and Path(given).samefile(file)
