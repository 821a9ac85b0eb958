"""Words, which are defined on the text and so are the same for every tokenizer.

A word is a run of letters, digits and combining marks. An ideograph (as in BERT) and any other
character that is not white space are words of one character.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from bertwright.data.tokenization.characters import IDEOGRAPHS

_FIRST_IDEOGRAPH = 0x20000  # from here on, all letters are ideographs
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of every word in characters."""
    return [match.span() for match in _word_pattern(text).finditer(text)]


def split_words(text: str) -> list[str]:
    """Return all words of a text in order."""
    return _word_pattern(text).findall(text)


def _word_pattern(text: str) -> re.Pattern[str]:
    return _ASCII_WORD if text.isascii() else _unicode_word()


@cache
def _unicode_word() -> re.Pattern[str]:
    ideograph = re.compile(f"[{IDEOGRAPHS}]")
    codes = [
        c
        for c in range(_FIRST_IDEOGRAPH)
        if _is_word_character(chr(c)) and not ideograph.match(chr(c))
    ]
    # The engine uses a table for the Basic Multilingual Plane, but searches other ranges linearly.
    basic = "".join(_character_ranges([code for code in codes if code < 0x10000]))
    beyond = "".join(_character_ranges([code for code in codes if code >= 0x10000]))
    return re.compile(rf"(?:[{basic}]+|(?=[\U00010000-\U0001ffff])[{beyond}])+|\S")


def _is_word_character(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _character_ranges(codes: list[int]) -> Iterator[str]:
    """Yield sorted code points as ranges of a character class."""
    first = previous = codes[0]
    for code in [*codes[1:], -1]:
        if code != previous + 1:
            yield f"{chr(first)}-{chr(previous)}"
            first = code
        previous = code
