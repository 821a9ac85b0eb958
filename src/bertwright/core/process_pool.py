"""Process pools, where the system supports them."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import BaseContext
from typing import Any

from bertwright.core.messages import first_line, print_once


def make_process_pool(
    num_processes: int,
    context: BaseContext,
    initializer: Callable[..., None],
    arguments: tuple[Any, ...],
) -> ProcessPoolExecutor | None:
    """Return a process pool; None, with a message on stderr, if the system has no semaphores.

    That is so where ``/dev/shm`` is missing, read-only or full.
    """
    try:
        return ProcessPoolExecutor(num_processes, context, initializer, arguments)
    except (OSError, ImportError, NotImplementedError) as error:
        print_once(f"work stays in one process: no semaphores can be made ({first_line(error)})")
        return None
