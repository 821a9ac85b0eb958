"""Language codes of inputs, and sampling weights of languages.

``en=FILE`` is text in English; ``en,de=A,B`` are two files whose lines are translations of each
other, and ``en,de=TABLE`` is a table with a column (or key) for each language.
"""

import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bertwright.core.errors import UserError

MAX_LANGUAGES = 1000
"""Maximum number of languages; a column with more distinct values holds something else."""

Language = TypeVar("Language")

_CODE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")


def language_code(value: Any, location: str) -> str:
    """Return a language code such as ``en`` or ``zh-Hant``; UserError if it is not one."""
    if not isinstance(value, str) or not _CODE.fullmatch(value):
        raise UserError(
            f"{location}: {value!r} is not a language code: write one such as en or zh-Hant"
        )
    return value


def parse_input_languages(argument: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the languages of an input (none, one, or two for translations) and its files.

    Errors: UserError for an invalid code, and for two codes with the wrong number of files.
    """
    stated, equals, path = argument.partition("=")
    exists = Path(argument).exists() or any(glob.iglob(argument, recursive=True))
    if not equals or "/" in stated or exists:
        return (), [argument]
    codes = tuple(language_code(code, argument) for code in stated.split(","))
    if len(codes) == 1:
        return codes, [path]
    files = path.split(",")
    if len(codes) != 2 or codes[0] == codes[1] or len(files) > 2:
        raise UserError(
            f"{argument}: translations are written en,de=FILE,FILE (line n of one is line n of the "
            f"other) or en,de=TABLE (a column for each)"
        )
    return codes, files


def smooth_fractions(sizes: Sequence[float], alpha: float) -> list[float]:
    """Return each language's fraction of the text, raised to ``alpha`` and normalised.

    ``alpha`` 1 keeps the fractions, 0 makes them equal (Lample and Conneau 2019, section 3.1).
    """
    text_size = sum(sizes)
    raised = [(size / text_size) ** alpha if size else 0.0 for size in sizes]
    total = sum(raised) or 1.0
    return [value / total for value in raised]


def upsampling_factors(sizes: Mapping[Language, float], alpha: float) -> dict[Language, float]:
    """Return the repetition factor of each language that smooths fractions; the smallest is 1."""
    fractions = dict(zip(sizes, smooth_fractions(list(sizes.values()), alpha), strict=True))
    ratios = {name: fractions[name] / size for name, size in sizes.items() if size}
    smallest = min(ratios.values(), default=1.0)
    return {name: ratio / smallest for name, ratio in ratios.items()}
