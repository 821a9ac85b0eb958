"""Registry of tasks by name."""

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.tasks.task import Task

TASKS: dict[str, Task] = {}
"""Tasks by name, in lower case."""


def add_task(task: Task) -> Task:
    """Register a task under its name, also from a plugin.

    Errors: UserError where another task has the name.
    """
    name = task.name.lower()
    if TASKS.setdefault(name, task) != task:
        raise UserError(f"a task {name!r} exists already: give yours another name")
    return task


def find_task(name: str) -> Task:
    """Return a task by name, written ``CoLA``, ``cola`` or ``glue/cola``; hyphens do not matter."""
    short = name.lower().rpartition("/")[2]
    for registered_name, task in TASKS.items():
        if registered_name.replace("-", "") == short.replace("-", "").replace("_", ""):
            return task
    raise UserError(f"no task {name!r}{did_you_mean(short, TASKS)}")
