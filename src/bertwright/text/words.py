"""What a word is: defined on the text, so it is the same for every tokenizer.

A word is a run of letters, digits and the marks that combine with them; every ideograph is a word
of its own (as in BERT); any other character that is not white space is a word of its own.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from bertwright.text.characters import IDEOGRAPHS

_LAST_SCRIPT = 0x20000  # beyond are ideographs
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of every word, in characters."""
    return [match.span() for match in _pattern(text).finditer(text)]


def words(text: str) -> list[str]:
    """Every word, in order."""
    return _pattern(text).findall(text)


def _pattern(text: str) -> re.Pattern[str]:
    return _ASCII_WORD if text.isascii() else _unicode_word()


@cache
def _unicode_word() -> re.Pattern[str]:
    ideograph = re.compile(f"[{IDEOGRAPHS}]")
    codes = [c for c in range(_LAST_SCRIPT) if _is_in_words(chr(c)) and not ideograph.match(chr(c))]
    # The engine looks up a class of the basic plane in a table, but walks through other ranges.
    basic = "".join(_ranges([code for code in codes if code < 0x10000]))
    beyond = "".join(_ranges([code for code in codes if code >= 0x10000]))
    return re.compile(rf"(?:[{basic}]+|(?=[\U00010000-\U0001ffff])[{beyond}])+|\S")


def _is_in_words(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _ranges(codes: list[int]) -> Iterator[str]:
    """Sorted code points as the ranges of a character class."""
    first = previous = codes[0]
    for code in [*codes[1:], -1]:
        if code != previous + 1:
            yield f"{chr(first)}-{chr(previous)}"
            first = code
        previous = code
