"""Tasks of one's own, made of any table or file of tagged words."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from bertwright.tasks.answers import Answer, TagAnswer
from bertwright.tasks.formats.labels import LabelIs
from bertwright.tasks.formats.tables import Columns, TableReader
from bertwright.tasks.formats.tagged import TagReader
from bertwright.tasks.task import Task

_LABELS = {"number": "number", "relevance": "number", "closeness": "number", "labels": "labels"}
"""How a column of labels is read, by the kind of answer; else as classes."""


def table_task(
    name: str,
    columns: Columns,
    answer: Answer | str = "class",
    metrics: Sequence[str] = (),
    labels: Sequence[str] = (),
    source: str = "",
    empty: bool = False,
) -> Task:
    """A task of texts or pairs in any TSV, CSV, JSON lines or Parquet file with named columns."""
    chosen = Answer.choose(answer)
    label_is = cast(LabelIs, _LABELS.get(chosen.own_kind(), "class"))
    reader = TableReader(columns=columns, label_is=label_is, empty=empty)
    return Task(name, chosen, reader, tuple(metrics), tuple(labels), source)


def tagging_task(
    name: str, column: str = "tag", metrics: Sequence[str] = (), source: str = ""
) -> Task:
    """A task of tagged words in any CoNLL, CoNLL-U or IOB2 file."""
    return Task(name, TagAnswer(), TagReader(column=column), tuple(metrics), source=source)


def with_columns(task: Task, columns: Columns) -> Task:
    """A task of a table, read from other columns."""
    assert isinstance(task.reader, TableReader), "only tables have columns"
    return replace(task, reader=task.reader.changed("columns", columns=columns))
