"""Messages on stderr, and what they name."""

import os
import sys
from functools import cache
from pathlib import Path


@cache
def print_once(message: str) -> None:
    """Print a message on stderr, once per process."""
    print(message, file=sys.stderr, flush=True)


def printable_name(path: str | Path) -> str:
    """Return a path as text; bytes that are not UTF-8 are escaped, such as ``\\xe9``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 layer``, ``2 layers``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class name if it has none."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
