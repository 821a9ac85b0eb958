"""Languages: how an input says in which one it is, and which texts count how often.

``en=FILE`` is text in English; ``en,de=A,B`` are two files whose lines are translations of each
other, and ``en,de=TABLE`` is a table with a column (or key) for each side.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bertwright.errors import UserError

MOST_LANGUAGES = 1000
"""A column with more different values than this does not hold languages."""

Name = TypeVar("Name")

_CODE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")


def language_code(value: Any, where: str) -> str:
    """A code such as ``en`` or ``zh-Hant``; UserError that says where it is none."""
    if not isinstance(value, str) or not _CODE.fullmatch(value):
        raise UserError(f"{where}: {value!r} is no code of a language: write one as en or zh-Hant")
    return value


def declared(given: str) -> tuple[tuple[str, ...], list[str]]:
    """The languages that an input states (none, one, or two of a translation), and its files.

    Errors: UserError for a code that is none, and for two codes with another number of files.
    """
    stated, equals, path = given.partition("=")
    if not equals or "/" in stated or Path(given).exists():
        return (), [given]
    codes = tuple(language_code(code, given) for code in stated.split(","))
    if len(codes) == 1:
        return codes, [path]
    files = path.split(",")
    if len(codes) != 2 or codes[0] == codes[1] or len(files) > 2:
        raise UserError(
            f"{given}: translations are written en,de=FILE,FILE (line n of one is line n of the "
            f"other) or en,de=TABLE (a column for each)"
        )
    return codes, files


def smoothed(sizes: Sequence[float], alpha: float) -> list[float]:
    """The share of each language where those of its text are raised to ``alpha`` (Lample and
    Conneau 2019, section 3.1): 1 takes the text as it is, 0 every language alike."""
    whole = sum(sizes)
    raised = [(size / whole) ** alpha if size else 0.0 for size in sizes]
    total = sum(raised) or 1.0
    return [value / total for value in raised]


def upsampling(sizes: Mapping[Name, float], alpha: float) -> dict[Name, float]:
    """How often the text of each language counts so that the shares are smoothed; 1 for that which
    counts least."""
    shares = dict(zip(sizes, smoothed(list(sizes.values()), alpha), strict=True))
    ratios = {name: shares[name] / size for name, size in sizes.items() if size}
    least = min(ratios.values(), default=1.0)
    return {name: ratio / least for name, ratio in ratios.items()}
