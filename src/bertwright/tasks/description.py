"""A task as plain data, so that a fine-tuned model can be asked again for what it was trained on.

A task that is known by name is that name. One made of a table or of a file of tagged words carries
its columns. A task whose examples were made in Python can be predicted, but not read from a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from bertwright.errors import UserError
from bertwright.tasks.catalogue import TASKS
from bertwright.tasks.encoding import Examples
from bertwright.tasks.formats.tables import Columns, read_table
from bertwright.tasks.formats.tagged import read_tagged
from bertwright.tasks.task import Task

READERS: dict[str, Callable[..., Examples]] = {"table": read_table, "tagged": read_tagged}


def described(task: Task) -> dict[str, Any]:
    """A task whose labels are known, as plain data."""
    return {
        "name": task.name,
        "answer": task.answer,
        "labels": list(task.labels),
        "metrics": list(task.metrics),
        "source": task.source,
        "reader": _reader(task),
    }


def task_of(stated: Mapping[str, Any]) -> Task:
    """The task that :func:`described` gave."""
    return Task(
        name=stated["name"],
        answer=stated["answer"],
        read=_reading(stated["name"], stated["reader"]),
        metrics=tuple(stated["metrics"]),
        labels=tuple(stated["labels"]),
        source=stated["source"],
    )


def columns_of(task: Task) -> Columns | None:
    """The columns of a task that is read from tables; None for another."""
    read = task.read
    return read.keywords.get("columns") if isinstance(read, partial) else None


def _reader(task: Task) -> str | dict[str, Any] | None:
    known = TASKS.get(task.name)
    if known is not None and known.read == task.read:
        return task.name
    read = task.read
    name = next((n for n, f in READERS.items() if isinstance(read, partial) and read.func is f), "")
    if not isinstance(read, partial) or not name:
        return None
    stated = {k: asdict(v) if isinstance(v, Columns) else v for k, v in read.keywords.items()}
    return {"kind": name, **stated}


def _reading(task: str, stated: str | Mapping[str, Any] | None) -> Callable[[Path], Examples]:
    if isinstance(stated, str):
        return TASKS[stated].read
    if stated is None:
        return partial(_refuse, task)
    settings = dict(stated)
    read = READERS[settings.pop("kind")]
    if "columns" in settings:
        columns = dict(settings["columns"])
        header = columns.pop("header")
        settings["columns"] = Columns(**columns, header=None if header is None else tuple(header))
        settings["labels"] = tuple(settings["labels"])
    return partial(read, **settings)


def _refuse(task: str, path: Path) -> Examples:
    raise UserError(
        f"{path}: the examples of task {task} were made in Python: hand them over there as well"
    )


def without_labels(task: Task) -> Task:
    """The task as it is read from files that have no labels."""
    columns = columns_of(task)
    read = task.read
    if columns is not None:
        unlabelled = partial(read_table, columns=replace(columns, label=None))
        return replace(task, read=unlabelled)
    if isinstance(read, partial) and read.func is read_tagged:
        return replace(task, read=partial(read_tagged, column=None))
    return task
