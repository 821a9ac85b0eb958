"""Computing with one thread."""

from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Generator[None]:
    """Compute with one thread within the block.

    On a busy machine, two threads of a small model that wait for each other took thirty times as
    long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
