"""Exit codes and messages when a command line ends with an error."""

import errno
import os
import sys
import tempfile

import typer

from bertwright.core.errors import TrainingInterrupted, UserError

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Errors of a standard output, or a file system for temporary files, that accepts no more data."""


def run_app(app: typer.Typer, program: str = "bertwright") -> None:
    """Run a command line; after a user error, print one sentence and exit with code 2."""
    # The standard streams may have been closed by a shell.
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(2)
    except TrainingInterrupted as interrupted:
        print(f"{program}: {interrupted}", file=sys.stderr)
        sys.exit(interrupted.exit_code)
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
