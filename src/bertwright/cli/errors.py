"""Exit codes and messages when a command line ends with an error."""

import errno
import io
import os
import re
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import typer

from bertwright.core.errors import TrainingInterrupted, UserError

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Errors of a standard output, or a file system for temporary files, that accepts no more data."""

# Typer comes with a copy of Click, or imports it: the base of this class is public in neither.
UsageError: Any = typer.BadParameter.__bases__[0]

_SUGGESTIONS = re.compile(r"[.( ]+(?:Possible options|Did you mean(?: one of)?):? ([^?)]+).*$")
_REPLACEMENTS = {"option: ": "option ", "Value error, ": "", ": Input should": ": it should"}


def run_app(app: typer.Typer, program: str = "bertwright") -> None:
    """Run a command line; after a user error, print one sentence and exit with code 2.

    A usage error of Click is a user error too.
    """
    # The standard streams may have been closed by a shell.
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Arguments and names of files may hold bytes that are not UTF-8.
        sys.stdout.reconfigure(errors="backslashreplace")
    interrupts: list[int] = []
    try:
        with _recorded_interrupts(interrupts):
            try:
                exit_code = app(standalone_mode=False)
            finally:
                sys.stdout.flush()
        sys.exit(exit_code)
    except UserError as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(2)
    except TrainingInterrupted as interrupted:
        print(f"{program}: {interrupted}", file=sys.stderr)
        sys.exit(interrupted.exit_code)
    except (KeyboardInterrupt, typer.Abort):  # the first while Typer builds the commands
        _exit_interrupted(program)
    except UsageError as error:
        message = usage_message(error, program)
        if message:
            print(f"{program}: {message}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is not None:
            print(f"{program}: {error.filename}: {error.strerror}: name another", file=sys.stderr)
        elif error.errno in _OUTPUT_ERRORS:
            # Discard what would still be flushed when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            where = f"standard output, or temporary files in {tempfile.gettempdir()}"
            print(f"{program}: {error.strerror} ({where}): free some space", file=sys.stderr)
        else:
            raise
        sys.exit(2)
    except Exception:
        # A module that is interrupted while it is imported may fail in any way.
        if interrupts:
            _exit_interrupted(program)
        raise


@contextmanager
def _recorded_interrupts(interrupts: list[int]) -> Generator[None]:
    """Append every SIGINT that raises KeyboardInterrupt; do nothing if it raises none."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        interrupts.append(signal_number)
        signal.default_int_handler(signal_number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_interrupted(program: str) -> NoReturn:
    print(f"{program}: stopped by SIGINT", file=sys.stderr)
    sys.exit(128 + signal.SIGINT)


def usage_message(error: Any, program: str) -> str:
    """Return one sentence: what is wrong, the names that are similar, and the command for help.

    It is empty if the help itself was printed, because a command has no arguments.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    problem = " ".join(error.format_message().split()).rstrip(".")
    for words, replacement in _REPLACEMENTS.items():
        problem = problem.replace(words, replacement)
    command = program if error.ctx is None else error.ctx.command_path
    suggestions = _SUGGESTIONS.search(problem)
    if suggestions is None:
        remedy = f"see {command} --help"
    else:
        problem = problem[: suggestions.start()]
        remedy = f"write {suggestions[1].replace(', ', ' or ')}, or see {command} --help"
    return str(UserError(f"{problem[:1].lower()}{problem[1:]}: {remedy}"))
