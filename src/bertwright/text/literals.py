"""The long strings in Python source: its documentation, and its longer messages.

A regular expression finds the literals and ``ast`` reads them. Parsing the files whole gives the
same strings, but for a few in ten thousand, and takes six times as long.
"""

import ast
import re
import warnings

SHORTEST = 40
"""In characters: a shorter string holds no paragraph."""

# Possessive are single characters alone: a possessive group is at fault before Python 3.11.5.
_COMMENT = r"#[^\n]*+"
_TRIPLE = "|".join(
    rf"{q}{{3}}[^{q}\\]*+(?:(?:\\.|{q}(?!{q}{q}))[^{q}\\]*+)*{q}{{3}}" for q in ('"', "'")
)
_SINGLE = "|".join(rf"{q}(?!{q}{q})[^{q}\\\n]*+(?:\\.[^{q}\\\n]*+)*{q}" for q in ('"', "'"))
_JOINED = rf"(?:(?:\s|\\\n|{_COMMENT})*[rRbBuUfF]{{0,2}}(?:{_SINGLE}))*"

# Every branch begins with a character of its own: the engine then skips from one to the next.
_LITERAL = re.compile(rf"{_COMMENT}|{_TRIPLE}|(?:{_SINGLE}){_JOINED}", re.DOTALL)
"""A comment (in which quotes mean nothing), or a literal with those that are joined to it."""

_PREFIX = re.compile(r"(?<!\w)[rRbBuUfF]{1,2}\Z")


def long_strings(code: str) -> list[str]:
    """The values of string literals of several words, in the order of the source.

    Formatted strings and bytes are left out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that mean nothing
        values = [
            _value(code, match) for match in _LITERAL.finditer(code) if _may_be_long(match.group())
        ]
    return [value for value in values if len(value) >= SHORTEST]


def _may_be_long(literal: str) -> bool:
    return len(literal) >= SHORTEST and literal[0] != "#" and " " in literal


def _value(code: str, match: re.Match[str]) -> str:
    """What a literal stands for; nothing where it is no plain string."""
    prefix = _PREFIX.search(code[max(0, match.start() - 3) : match.start()])
    try:
        value = ast.literal_eval(f"({prefix.group() if prefix else ''}{match.group()})")
    except (SyntaxError, ValueError):
        return ""
    return value if isinstance(value, str) else ""
