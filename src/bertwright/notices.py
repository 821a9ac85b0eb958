"""Lines on stderr beside the output of a verb."""

import sys
from functools import cache


@cache
def say_once(sentence: str) -> None:
    """Print a sentence on stderr, once in a process."""
    print(sentence, file=sys.stderr, flush=True)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its name where it has none."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
