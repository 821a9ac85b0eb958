"""Pools of processes, where the system can make them."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import BaseContext
from typing import Any

from bertwright.notices import first_line, say_once


def process_pool(
    processes: int,
    context: BaseContext,
    initializer: Callable[..., None],
    arguments: tuple[Any, ...],
) -> ProcessPoolExecutor | None:
    """Return a pool of processes; None, with a line on stderr, where the system makes no semaphores
    for one, since ``/dev/shm`` is missing, read-only or full."""
    try:
        return ProcessPoolExecutor(processes, context, initializer, arguments)
    except (OSError, ImportError, NotImplementedError) as error:
        say_once(f"work stays in one process: no semaphores can be made ({first_line(error)})")
        return None
