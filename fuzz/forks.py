"""Run verbs in forked processes, which start in milliseconds."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bertwright.cli.app import main

CRASHED = 70
"""Exit code of a verb that ended with a traceback."""


@dataclass(frozen=True)
class ProcessResult:
    """Outcome of a process: its exit code, or None after a kill, and its stderr."""

    code: int | None
    errors: str
    seconds: float


def run(
    words: Sequence[str],
    kill_after: float | None = None,
    prepare: Callable[[], None] = lambda: None,
) -> ProcessResult:
    """Run a verb; kill it after some seconds.

    ``prepare`` is called in the process first.
    """
    start = time.monotonic()
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
    return ProcessResult(code, errors, time.monotonic() - start)


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
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
