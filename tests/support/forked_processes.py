"""Processes that need not import PyTorch again."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["bertwright.studies.run", "bertwright.tasks.finetuning.finetune"])


@pytest.fixture
def preloaded_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of ``run_parallel`` with PyTorch imported already."""
    monkeypatch.setattr("bertwright.runtime.parallel.get_context", lambda method: forks)


def together(run: Callable[..., Any], *arguments: Any, num_processes: int = 2) -> None:
    """Call a function in several processes with the environment of torchrun."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = [
        forks.Process(target=_run_rank, args=(rank, num_processes, port, run, arguments))
        for rank in range(num_processes)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * num_processes


def _run_rank(
    rank: int, num_processes: int, port: int, run: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    # Importing it takes a while.
    from short_runs import shorten

    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_processes, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in values.items()}, MASTER_ADDR="127.0.0.1")
    shorten(pytest.MonkeyPatch())
    run(*arguments)
