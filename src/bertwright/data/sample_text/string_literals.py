"""Long string literals of Python source: documentation and longer messages.

A regular expression finds the literals and ``ast`` evaluates them. Parsing whole files would give
the same strings, except for a few in ten thousand, and take six times as long.
"""

import ast
import re
import warnings

MIN_STRING_LENGTH = 40
"""Minimum number of characters of a string."""

# Possessive quantifiers follow single characters only: after groups they fail before Python 3.11.5.
_COMMENT = r"#[^\n]*+"
_TRIPLE = "|".join(
    rf"{q}{{3}}[^{q}\\]*+(?:(?:\\.|{q}(?!{q}{q}))[^{q}\\]*+)*{q}{{3}}" for q in ('"', "'")
)
_SINGLE = "|".join(rf"{q}(?!{q}{q})[^{q}\\\n]*+(?:\\.[^{q}\\\n]*+)*{q}" for q in ('"', "'"))
_ADJACENT_LITERALS = rf"(?:(?:\s|\\\n|{_COMMENT})*[rRbBuUfF]{{0,2}}(?:{_SINGLE}))*"

# Every branch begins with a different character, so the engine can skip to the next candidate.
_LITERAL = re.compile(rf"{_COMMENT}|{_TRIPLE}|(?:{_SINGLE}){_ADJACENT_LITERALS}", re.DOTALL)
"""A comment (whose quotes are ignored), or a literal with its adjacent literals."""

_PREFIX = re.compile(r"(?<!\w)[rRbBuUfF]{1,2}\Z")


def long_strings(code: str) -> list[str]:
    """Return the values of string literals of several words, in source order.

    Formatted strings and bytes are left out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes
        values = [
            _literal_value(code, match)
            for match in _LITERAL.finditer(code)
            if _may_be_long(match.group())
        ]
    return [value for value in values if len(value) >= MIN_STRING_LENGTH]


def _may_be_long(literal: str) -> bool:
    return len(literal) >= MIN_STRING_LENGTH and literal[0] != "#" and " " in literal


def _literal_value(code: str, match: re.Match[str]) -> str:
    """Return the value of a literal; "" if it is not a plain string."""
    prefix = _PREFIX.search(code[max(0, match.start() - 3) : match.start()])
    try:
        value = ast.literal_eval(f"({prefix.group() if prefix else ''}{match.group()})")
    except (SyntaxError, ValueError):
        return ""
    return value if isinstance(value, str) else ""
