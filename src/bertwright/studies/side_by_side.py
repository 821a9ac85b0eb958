"""Small jobs on every core: a process of one thread each."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from torch import set_num_threads

from bertwright.machine import num_cores


@contextmanager
def side_by_side(most: int) -> Generator[Callable[..., Iterator[Any]]]:
    """A ``map`` over at most so many processes; over this one where there is little to do."""
    count = min(most, num_cores())
    if count < 2:
        yield map
        return
    with ProcessPoolExecutor(
        count, mp_context=get_context("spawn"), initializer=set_num_threads, initargs=(1,)
    ) as pool:
        yield pool.map
