"""Tasks by name."""

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.task import Task

TASKS: dict[str, Task] = {}
"""By name, in lower case."""


def add_task(task: Task) -> Task:
    """Make a task known by its name: what a plugin does with one of its own.

    Errors: UserError where the name is taken by another.
    """
    name = task.name.lower()
    if TASKS.setdefault(name, task) != task:
        raise UserError(f"there is a task {name!r} already: give yours another name")
    return task


def find_task(name: str) -> Task:
    """The task of that name, whether written ``CoLA``, ``cola`` or ``glue/cola``; hyphens do not
    matter."""
    short = name.lower().rpartition("/")[2]
    for known, task in TASKS.items():
        if known.replace("-", "") == short.replace("-", "").replace("_", ""):
            return task
    raise UserError(f"no task {name!r}{did_you_mean(short, TASKS)}")
