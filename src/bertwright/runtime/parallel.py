"""Long jobs in parallel processes, which are stopped with this process."""

import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import active_children, get_context
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, NoReturn, TypeVar

from bertwright.core.errors import UserError
from bertwright.core.hardware import num_cores
from bertwright.core.parallel import make_process_pool
from bertwright.runtime.process import configure_process

Result = TypeVar("Result")


def run_parallel(
    jobs: Sequence[Callable[[], Result]], num_processes: int
) -> Iterator[tuple[int, Result]]:
    """Yield (job index, result) as jobs complete.

    With ``num_processes`` 1 the jobs run in this process, in order. Several processes share the
    threads equally, and jobs must be picklable. An exception in a job stops all jobs, and so does
    SIGTERM, by KeyboardInterrupt(SIGTERM).

    Errors: UserError if a process was killed.
    """
    count = min(num_processes, len(jobs))
    threads = max(1, num_cores() // num_processes)
    pool = (
        make_process_pool(count, get_context("spawn"), _initialise_process, (threads,))
        if count > 1
        else None
    )
    if pool is None:
        yield from ((index, job()) for index, job in enumerate(jobs))
        return
    # The processes ignore SIGINT, which could arrive during their start-up. This process terminates
    # them instead, and training completes its step.
    pending = iter(enumerate(jobs))
    with _signal_handlers({signal.SIGINT: signal.SIG_IGN}):
        running = {pool.submit(job): index for index, job in islice(pending, count)}
    try:
        with _signal_handlers({signal.SIGTERM: _interrupt}):
            yield from _results_as_completed(pool, running, pending)
    except BrokenProcessPool as error:
        raise UserError(
            "a process was killed, most likely because memory ran out: use fewer processes"
        ) from error
    except BaseException:
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _results_as_completed(
    pool: ProcessPoolExecutor,
    running: dict[Future[Any], int],
    pending: Iterator[tuple[int, Callable[[], Any]]],
) -> Iterator[tuple[int, Any]]:
    """Yield results, submitting a new job only when another completes.

    Otherwise a queued job would start when the running ones are stopped.
    """
    while running:
        completed, _ = wait(running, return_when=FIRST_COMPLETED)
        indices = {future: running.pop(future) for future in completed}
        running |= {pool.submit(job): index for index, job in islice(pending, len(completed))}
        for future, index in indices.items():
            yield index, future.result()


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal_number)


def _initialise_process(num_threads: int) -> None:
    configure_process()
    import torch

    torch.set_num_threads(num_threads)


@contextmanager
def _signal_handlers(handlers: Mapping[signal.Signals, Any]) -> Generator[None]:
    """Replace signal handlers within the block; do nothing outside the main thread."""
    if current_thread() is not main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
