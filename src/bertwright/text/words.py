"""What a word is: defined on the text, so it is the same for every tokenizer.

A word is a run of letters, digits and the marks that combine with them; every ideograph is a word
of its own (as in BERT); any other character that is not white space is a word of its own.
"""

import re
import unicodedata
from functools import cache

from bertwright.text.characters import IDEOGRAPHS

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of every word, in characters."""
    pattern = _ASCII_WORD if text.isascii() else _unicode_word()
    return [match.span() for match in pattern.finditer(text)]


@cache
def _unicode_word() -> re.Pattern[str]:
    marks = "".join(_ranges([c for c in range(0x300, 0x1F000) if _is_mark(c)]))
    return re.compile(rf"[{IDEOGRAPHS}]|(?:(?![{IDEOGRAPHS}])[^\W_]|[{marks}])+|[^\w\s]|_")


def _is_mark(code: int) -> bool:
    return unicodedata.category(chr(code)).startswith("M")


def _ranges(codes: list[int]) -> list[str]:
    """Sorted code points as the ranges of a character class."""
    ranges: list[str] = []
    first = previous = codes[0]
    for code in [*codes[1:], -1]:
        if code != previous + 1:
            ranges.append(f"{chr(first)}-{chr(previous)}")
            first = code
        previous = code
    return ranges
