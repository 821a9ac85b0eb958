"""Long jobs next to each other, in processes of this machine that end when this one is stopped."""

import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import active_children, get_context
from threading import current_thread, main_thread
from typing import Any, TypeVar

from bertwright.errors import UserError
from bertwright.machine.cores import num_cores
from bertwright.process_pools import process_pool

Result = TypeVar("Result")


def side_by_side(
    jobs: Sequence[Callable[[], Result]], processes: int
) -> Iterator[tuple[int, Result]]:
    """The numbers of jobs and what they return, as they end.

    With one process they are done in this one, in their order; with several each has its share of
    the threads, and jobs must be such that they can be pickled. What one raises ends all.

    Errors: UserError where a process was killed.
    """
    count = min(processes, len(jobs))
    threads = max(1, num_cores() // processes)
    pool = (
        process_pool(count, get_context("spawn"), _take_threads, (threads,)) if count > 1 else None
    )
    if pool is None:
        yield from ((number, job()) for number, job in enumerate(jobs))
        return
    # The processes ignore Ctrl-C, or some would be hit while they start: this one passes it on, and
    # what is in training ends its step.
    left = iter(enumerate(jobs))
    with _signals({signal.SIGINT: signal.SIG_IGN}):
        begun = {pool.submit(job): number for number, job in islice(left, count)}
    try:
        with _signals({signal.SIGTERM: signal.default_int_handler}):
            yield from _as_they_end(pool, begun, left)
    except BrokenProcessPool as error:
        raise UserError(
            "a process was killed, most likely for want of memory: ask for fewer at once"
        ) from error
    except BaseException:
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _as_they_end(
    pool: ProcessPoolExecutor,
    begun: dict[Future[Any], int],
    left: Iterator[tuple[int, Callable[[], Any]]],
) -> Iterator[tuple[int, Any]]:
    """One is begun where one has ended: none waits at a process, or it would begin there when all
    are stopped."""
    while begun:
        ended, _ = wait(begun, return_when=FIRST_COMPLETED)
        numbers = {future: begun.pop(future) for future in ended}
        begun |= {pool.submit(job): number for number, job in islice(left, len(ended))}
        for future, number in numbers.items():
            yield number, future.result()


def _take_threads(number: int) -> None:
    import torch

    torch.set_num_threads(number)


@contextmanager
def _signals(handlers: Mapping[signal.Signals, Any]) -> Generator[None]:
    """What is done at signals for a while; they reach the main thread only."""
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
