"""Verbs in processes of their own, which are there in milliseconds: all is imported before."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bertwright.cli.application import main

CRASHED = 70
"""The exit code of a verb that ended with a traceback."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, None where it was killed; and what it said."""

    code: int | None
    errors: str
    seconds: float


def run(
    words: Sequence[str],
    kill_after: float | None = None,
    prepare: Callable[[], None] = lambda: None,
) -> Ended:
    """Run a verb, and kill it after so many seconds, if it is still there.

    ``prepare`` is called in its process first.
    """
    began = time.monotonic()
    read_end, write_end = os.pipe()
    process = _fork(words, write_end, prepare)
    os.close(write_end)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(process, signal.SIGKILL)
    with open(read_end, errors="replace") as stream:
        errors = stream.read()
    _, status = os.waitpid(process, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    return Ended(code, errors, time.monotonic() - began)


def _fork(words: Sequence[str], errors: int, prepare: Callable[[], None]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    code = CRASHED
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(errors, 2)
        os.close(errors)
        sys.argv = ["bertwright", *words]
        prepare()
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
