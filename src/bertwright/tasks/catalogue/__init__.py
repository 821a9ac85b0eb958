"""Named tasks, and tasks from any file with named columns."""

from bertwright.tasks.catalogue import glue, named_tasks
from bertwright.tasks.catalogue.answers_in_words import answered_in_words
from bertwright.tasks.catalogue.registry import (
    TASKS,
    add_task,
    find_task,
    table_task,
    tagging_task,
    with_columns,
)
from bertwright.tasks.data.split_files import find_split_file

for task in (*glue.TASKS, *named_tasks.TASKS):
    TASKS.register(task.name.lower(), task)

__all__ = [
    "TASKS",
    "add_task",
    "answered_in_words",
    "find_split_file",
    "find_task",
    "table_task",
    "tagging_task",
    "with_columns",
]
