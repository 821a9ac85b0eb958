"""Process pools, and a parallel map with results in order."""

import ctypes
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from typing import Any, Protocol, TypeVar

from bertwright.core.errors import UserError
from bertwright.core.messages import first_line, print_once
from bertwright.core.operating_system import interrupts_blocked

Item = TypeVar("Item")
Result = TypeVar("Result")
Text = TypeVar("Text", bound=Sized)

CHUNK_CHARACTERS = 1 << 18
ITEMS_AHEAD = 3
"""Number of items per worker that are read ahead of the results."""

PARALLELISM_VARIABLE = "TOKENIZERS_PARALLELISM"


def chunk_texts(texts: Iterable[Text], chunk_characters: int | None = None) -> Iterator[list[Text]]:
    """Yield lists of texts (or documents) of about ``chunk_characters`` characters.

    The default is ``CHUNK_CHARACTERS``.
    """
    chunk_characters = chunk_characters or CHUNK_CHARACTERS
    chunk: list[Text] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= chunk_characters:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def make_process_pool(
    num_processes: int,
    context: BaseContext,
    initializer: Callable[..., None],
    arguments: tuple[Any, ...],
) -> ProcessPoolExecutor | None:
    """Return a process pool; None, with a message on stderr, if the system has no semaphores.

    Semaphores need a ``/dev/shm`` that exists, is writable and has free space.
    """
    try:
        return ProcessPoolExecutor(num_processes, context, initializer, arguments)
    except (OSError, ImportError, NotImplementedError) as error:
        print_once(f"work stays in one process: no semaphores can be made ({first_line(error)})")
        return None


class OrderedMap(Protocol):
    """A parallel map: the results of ``make_function(*arguments)`` for every item, in order."""

    def __call__(
        self,
        make_function: Callable[..., Callable[[Item], Result]],
        arguments: tuple[Any, ...],
        items: Iterable[Item],
    ) -> Iterator[Result]: ...


def map_in_order(
    make_function: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    items: Iterable[Item],
    num_workers: int,
) -> Iterator[Result]:
    """Yield the results of ``make_function(*arguments)`` for every item, in order.

    ``num_workers`` processes compute them; with one worker, this process does. Memory does not grow
    with the number of items.
    """
    if num_workers < 1:
        raise UserError(f"the number of workers must be at least 1, not {num_workers}")
    pool = None
    if num_workers > 1:
        pool = make_process_pool(
            num_workers,
            _multiprocessing_context(),
            _initialise_worker,
            (os.getpid(), make_function, arguments),
        )
    if pool is None:
        yield from map(make_function(*arguments), items)
        return
    pending: deque[Future[Any]] = deque()
    try:
        with _fork_safely():
            pool.submit(os.getpid)  # starts the workers
        for item in items:
            pending.append(pool.submit(_apply_worker, item))
            if len(pending) > ITEMS_AHEAD * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was killed, most likely because memory ran out: use fewer workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_worker: list[Callable[[Any], Any]] = []


def _initialise_worker(
    parent: int, make_function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    _die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the workers
    os.environ[PARALLELISM_VARIABLE] = "false"
    _worker[:] = [make_function(*arguments)]


def _apply_worker(item: Any) -> Any:
    return _worker[0](item)


@contextmanager
def _fork_safely() -> Generator[None]:
    """Make it safe to fork within the block.

    SIGINT is blocked: Python could lose it, or wait for a worker that is half started. Threads of
    the tokenizers library are disabled, because a fork does not copy them. Python's warning about
    forking with threads is silenced: workers use no lock that other threads may hold.
    """
    parallelism = os.environ.get(PARALLELISM_VARIABLE)
    os.environ[PARALLELISM_VARIABLE] = "false"
    try:
        with interrupts_blocked(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        del os.environ[PARALLELISM_VARIABLE]
        if parallelism is not None:
            os.environ[PARALLELISM_VARIABLE] = parallelism


def _multiprocessing_context() -> BaseContext:
    # Fork is fast and needs no ``__main__`` guard in the user's script, but is safe on Linux only.
    return get_context("fork" if sys.platform == "linux" else "spawn")


def _die_with_parent(parent: int) -> None:
    """End this worker when its parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
