"""The tasks that are known by name, and tasks made of any file with named columns."""

from bertwright.tasks.catalogue import glue, options, pairs, questions, tagging
from bertwright.tasks.catalogue.making import table_task, tagging_task
from bertwright.tasks.catalogue.parts import find_part
from bertwright.tasks.catalogue.registry import TASKS, add_task, find_task

for _room in (glue, pairs, tagging, questions, options):
    for _task in _room.TASKS:
        add_task(_task)

__all__ = ["TASKS", "add_task", "find_part", "find_task", "table_task", "tagging_task"]
