"""Processes that need not import PyTorch again."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from short_runs import shorten

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["bertwright.training.pretraining.pretrain"])


def together(run: Callable[..., Any], *arguments: Any) -> None:
    """Call a function in two processes with the environment of torchrun."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = [
        forks.Process(target=_run_rank, args=(rank, port, run, arguments)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]


def _run_rank(rank: int, port: int, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in values.items()}, MASTER_ADDR="127.0.0.1")
    shorten(pytest.MonkeyPatch())
    run(*arguments)
