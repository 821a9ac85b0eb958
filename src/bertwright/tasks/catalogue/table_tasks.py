"""Custom tasks from tables and files of tagged words."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from bertwright.tasks.formats.labels import LabelKind
from bertwright.tasks.formats.tables import Columns, TableReader
from bertwright.tasks.formats.tagged_sentences import TaggedSentenceReader
from bertwright.tasks.outputs import OutputType, TokenClassificationOutput
from bertwright.tasks.task import Task

_LABEL_KINDS = {
    "number": "number",
    "relevance": "number",
    "closeness": "number",
    "labels": "labels",
}
"""How a label column is parsed, by the kind of output type; default: classes."""


def table_task(
    name: str,
    columns: Columns,
    output_type: OutputType | str = "class",
    metrics: Sequence[str] = (),
    labels: Sequence[str] = (),
    source: str = "",
    allow_empty: bool = False,
) -> Task:
    """Return a task on texts or pairs in a TSV, CSV, JSON lines or Parquet file."""
    parsed_type = OutputType.parse(output_type)
    label_kind = cast(LabelKind, _LABEL_KINDS.get(parsed_type.kind_name(), "class"))
    reader = TableReader(columns=columns, label_kind=label_kind, allow_empty=allow_empty)
    return Task(name, parsed_type, reader, tuple(metrics), tuple(labels), source)


def tagging_task(
    name: str, column: str = "tag", metrics: Sequence[str] = (), source: str = ""
) -> Task:
    """Return a task on tagged words in a CoNLL, CoNLL-U or IOB2 file."""
    return Task(
        name,
        TokenClassificationOutput(),
        TaggedSentenceReader(column=column),
        tuple(metrics),
        source=source,
    )


def with_columns(task: Task, columns: Columns) -> Task:
    """Return a table task that reads other columns."""
    assert isinstance(task.reader, TableReader), "only tables have columns"
    return replace(task, reader=task.reader.copy_with("columns", columns=columns))
