"""Work spread over processes, with the results in the order of the work."""

import ctypes
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from bertwright.errors import UserError
from bertwright.process_pools import process_pool

Item = TypeVar("Item")
Result = TypeVar("Result")
Text = TypeVar("Text", bound=Sized)

CHUNK_CHARACTERS = 1 << 18
_AHEAD = 3
_LIBRARY_THREADS = "TOKENIZERS_PARALLELISM"


def chunked(texts: Iterable[Text], characters: int | None = None) -> Iterator[list[Text]]:
    """Texts (or documents) in lists of about so many characters; ``CHUNK_CHARACTERS`` if None."""
    characters = characters or CHUNK_CHARACTERS
    chunk: list[Text] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= characters:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def in_order(
    make: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    items: Iterable[Item],
    num_workers: int,
) -> Iterator[Result]:
    """``make(*arguments)`` applied to every item, in ``num_workers`` processes of their own.

    A few items wait for every worker, so memory does not grow with the number of items. With one
    worker the work is done here.
    """
    if num_workers < 1:
        raise UserError(f"the number of workers must be at least 1, not {num_workers}")
    pool = None
    if num_workers > 1:
        pool = process_pool(num_workers, _context(), _start_worker, (os.getpid(), make, arguments))
    if pool is None:
        yield from map(make(*arguments), items)
        return
    pending: deque[Future[Any]] = deque()
    try:
        with _quietly():
            pool.submit(_nothing)  # starts the workers
        for item in items:
            pending.append(pool.submit(_work, item))
            if len(pending) > _AHEAD * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was killed, most likely for want of memory: use fewer workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_worker: list[Callable[[Any], Any]] = []


def _start_worker(parent: int, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process tells them to end
    os.environ[_LIBRARY_THREADS] = "false"
    _worker[:] = [make(*arguments)]


def _work(item: Any) -> Any:
    return _worker[0](item)


def _nothing() -> None:
    """What a worker does first."""


@contextmanager
def _quietly() -> Generator[None]:
    """Start workers without what a fork may meet.

    Ctrl-C is held back: Python would lose it, or wait for half a worker. The tokenizers library is
    told that its threads do not come along. Python need not warn of forking beside other threads:
    workers use nothing that those may have locked.
    """
    parallelism = os.environ.get(_LIBRARY_THREADS)
    os.environ[_LIBRARY_THREADS] = "false"
    interrupts = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, interrupts)
        del os.environ[_LIBRARY_THREADS]
        if parallelism is not None:
            os.environ[_LIBRARY_THREADS] = parallelism


def _context() -> BaseContext:
    # A fork needs no guard in the user's script and starts at once; elsewhere it is not safe.
    return get_context("fork" if sys.platform == "linux" else "spawn")


def _die_with_parent(parent: int) -> None:
    """Leave no worker behind when the parent is killed outright."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
