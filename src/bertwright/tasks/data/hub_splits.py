"""Splits of data sets on the Hub as files of a task, kept in bertwright's cache."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from bertwright.core.cache_folder import cache_folder
from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder
from bertwright.data.hub.reference import HubDataset
from bertwright.data.hub.rows import RowStream, find_commit, open_splits
from bertwright.tasks.data.split_files import SplitName, find_split_file, split_of
from bertwright.tasks.formats.tables import TableReader
from bertwright.tasks.task import Task

COLUMN_ALIASES = {
    "#1 String": "sentence1",
    "#2 String": "sentence2",
    "Quality": "label",
    "score": "label",
    "is_duplicate": "label",
    "gold_label": "label",
    "sentence1": "premise",
    "sentence2": "hypothesis",
}
"""Columns of the files of GLUE, and their names in its data set on the Hub."""

NO_LABEL = -1
"""Class number of an example without a label."""


def hub_split_file(task: Task, dataset: HubDataset, split: SplitName) -> Path | None:
    """Return the file of a split, with the columns of the task; None if there is no such split.

    The training and development splits are downloaded once per commit, in bounded memory. Classes
    are written by number if the labels of the task are numbers, else by name.

    Errors: UserError if the data set cannot be read, has no training split, or lacks a column.
    """
    reader = task.reader
    if not isinstance(reader, TableReader):
        raise UserError(
            f"{dataset} is a table, and task {task.name} reads another format: download its files, "
            f"and name their folder with --data"
        )
    commit, columns = find_commit(dataset), list(dict.fromkeys(reader.column_names()))
    optional = reader.optional_column_names
    has_numbers = bool(task.labels) and all(label.isdigit() for label in task.labels)
    key = json.dumps([str(dataset), commit, columns, optional, has_numbers])
    folder = cache_folder() / "hub-data" / sha256(key.encode()).hexdigest()[:32]
    if not folder.is_dir():
        splits = open_splits(dataset, commit)
        if not any(split_of(name) == "train" for name in splits):
            raise UserError(f"{dataset} has no training split: it has {', '.join(splits)}")
        with atomic_folder(folder) as temporary:
            for name, rows in splits.items():
                if split_of(name) in ("train", "dev"):
                    present = [column for column in optional if column in rows.columns]
                    sources = {name: _find_column(name, rows, task) for name in columns + present}
                    _write_rows(temporary / f"{name}.jsonl", rows, sources, has_numbers)
    if not any(split_of(file.stem) == split for file in folder.iterdir()):
        return None
    return find_split_file(folder, split)


def _write_rows(file: Path, rows: RowStream, sources: Mapping[str, str], has_numbers: bool) -> None:
    """Write rows as JSON lines; ``sources`` are their columns, by the names of the task."""
    with open(file, "w", encoding="utf-8") as opened:
        for row in rows.read(list(dict.fromkeys(sources.values()))):
            values = {
                column: _class_name(row[source], rows.class_names.get(source), has_numbers)
                for column, source in sources.items()
            }
            opened.write(json.dumps(values, ensure_ascii=False) + "\n")


def _class_name(value: Any, names: Sequence[str] | None, has_numbers: bool) -> Any:
    """Return the class with a number; None without a label, and values that are no class as is."""
    if names is None or value is None:
        return value
    if value == NO_LABEL:
        return None
    return str(value) if has_numbers else names[value]


def _find_column(column: str, rows: RowStream, task: Task) -> str:
    """Return the column of a data set that holds a column of the task."""
    for name in (column, COLUMN_ALIASES.get(column)):
        if name in rows.columns:
            return name
    raise UserError(
        f"{rows.dataset} has no column {column!r}, which task {task.name} reads: its columns are "
        f"{', '.join(rows.columns)}"
    )
