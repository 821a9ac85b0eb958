"""Registry of tasks by name, and tasks from tables and files of tagged words."""

from collections.abc import Sequence
from dataclasses import replace

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.registry import Registry, import_installed_plugins
from bertwright.tasks.formats.tables import Columns, TableReader
from bertwright.tasks.formats.tagged_sentences import TaggedSentenceReader
from bertwright.tasks.outputs import OutputType, TokenClassificationOutput
from bertwright.tasks.task import Task

TASKS = Registry[Task]()
"""Tasks by name, in lower case."""


def add_task(task: Task) -> Task:
    """Register a task under its name, also from a plugin.

    Errors: UserError if another task has the name.
    """
    name = task.name.lower()
    if TASKS.get(name, task) != task:
        raise UserError(f"a task {name!r} exists already: give yours another name")
    TASKS.register(name, task)
    return task


def find_task(name: str) -> Task:
    """Return a task by name, written ``CoLA``, ``cola`` or ``glue/cola``; hyphens do not matter."""
    short = name.lower().rpartition("/")[2]
    if (task := _find_knlabelled_lines(short)) is None:
        import_installed_plugins()
        task = _find_knlabelled_lines(short)
    if task is None:
        raise UserError(f"no task {name!r}{did_you_mean(short, TASKS)}")
    return task


def _find_knlabelled_lines(name: str) -> Task | None:
    plain_name = name.replace("-", "").replace("_", "")
    return next((t for n, t in TASKS.items() if n.replace("-", "") == plain_name), None)


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
    reader = TableReader(
        columns=columns, label_kind=parsed_type.label_kind, allow_empty=allow_empty
    )
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
