"""Exit codes and messages of a command line that ends with an error."""

import errno
import os
import sys
import tempfile

import typer

from bertwright.core.errors import TrainingInterrupted, UserError

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Error numbers of a standard output, or of a temporary file, that takes no more."""


def run_app(app: typer.Typer, program: str = "bertwright") -> None:
    """Run a command line; exit with code 2 after an error of the user, printed as one sentence."""
    # A shell may have closed them.
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
            # What is still to be flushed at the end of the process has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            where = f"standard output, or temporary files in {tempfile.gettempdir()}"
            print(f"{program}: {error.strerror} ({where}): free some space", file=sys.stderr)
        else:
            raise
        sys.exit(2)
