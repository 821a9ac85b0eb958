"""Messages on stderr."""

import sys
from functools import cache


@cache
def print_once(message: str) -> None:
    """Print a message on stderr, once per process."""
    print(message, file=sys.stderr, flush=True)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class name if it has none."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
