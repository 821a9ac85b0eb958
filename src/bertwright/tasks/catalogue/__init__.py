"""Named tasks, and tasks from any file with named columns."""

from bertwright.tasks.catalogue import glue, named_tasks
from bertwright.tasks.catalogue.registry import TASKS, add_task, find_task
from bertwright.tasks.catalogue.table_tasks import table_task, tagging_task
from bertwright.tasks.data.split_files import find_split_file

for _task in (*glue.TASKS, *named_tasks.TASKS):
    add_task(_task)

__all__ = ["TASKS", "add_task", "find_split_file", "find_task", "table_task", "tagging_task"]
