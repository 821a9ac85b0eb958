"""Real processes without the seconds that each would need to import PyTorch."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from short_runs import shorten

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["bertwright.training.pretraining"])


def together(run: Callable[..., Any], *arguments: Any) -> None:
    """Call a function in two processes that know of each other what torchrun would tell them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [forks.Process(target=_one, args=(rank, port, run, arguments)) for rank in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]


def _one(rank: int, port: int, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in told.items()}, MASTER_ADDR="127.0.0.1")
    shorten(pytest.MonkeyPatch())
    run(*arguments)
