"""Sentences in columns: one word per line, an empty line after a sentence (CoNLL).

Columns are separated by tabs if the first word has one, else by spaces; a last column that is empty
in all lines is dropped. ``-DOCSTART-`` ends a sentence; its line is skipped.

A line that begins with ``#`` is a comment if its number of columns differs from the words'. If it
has as many columns, it is a comment if words are numbered, since numbers do not begin with ``#``;
otherwise, before the first word of a sentence, it is a word only if its last column is a tag.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.data.readers.text_lines import LocatedLine

LocatedFields = tuple[str, list[str]]
"""Location of a line, and its columns."""

DOCUMENT_START = "-DOCSTART-"

NUMBER = re.compile(r"\d+([-.]\d+)?")
"""Number of a word, of a multiword token (``19-20``) or of an empty node (``8.1``)."""

_SPAN_TAG = re.compile(r"O|[BILUOESMW]-.+")


def read_sentences(lines: Iterable[LocatedLine]) -> Iterator[list[LocatedFields]]:
    """Iterate over the sentences as lists of rows of equal width.

    Errors: UserError with the line, for a row whose width differs from the first.
    """
    located_lines = list(lines)
    first = next((item for item in located_lines if _is_word(item[1])), None)
    if first is None:
        return
    separator = "\t" if "\t" in first[1].strip() else None
    rows = [(location, _fields(line, separator)) for location, line in located_lines]
    _drop_empty_last(rows)
    width = next(len(row) for location, row in rows if location == first[0])
    start = next(location for location, row in rows if len(row) == width and row[0][:1] != "#")
    tags = _certain_tags(rows, width)
    sentence: list[LocatedFields] = []
    for location, row in rows:
        if _is_boundary(row):
            if sentence:
                yield sentence
            sentence = []
        elif row[0].startswith("#") and _is_comment(row, width, tags, bool(sentence)):
            continue
        elif len(row) != width:
            raise UserError(
                f"{location} has {count_noun(len(row), 'column')} instead of {width} as in line "
                f"{start.rpartition(' ')[2]}: all lines of a file need the same number"
            )
        else:
            sentence.append((location, row))
    if sentence:
        yield sentence


def has_word_numbers(rows: Sequence[LocatedFields]) -> bool:
    """Return whether the first column numbers the words of a sentence."""
    if not all(len(row) > 1 and NUMBER.fullmatch(row[0]) for _, row in rows):
        return False
    numbers = [int(row[0]) for _, row in rows if row[0].isdecimal()]
    first = numbers[0] if numbers else -1
    return first in (0, 1) and numbers == [*range(first, first + len(numbers))]


def _is_word(line: str) -> bool:
    """Return whether a line is certainly the row of a word."""
    text = line.strip()
    return bool(text) and not text.startswith("#") and text.split()[0] != DOCUMENT_START


def _is_boundary(row: Sequence[str]) -> bool:
    """Return whether a line separates sentences."""
    return not row or row[0].partition(" ")[0] == DOCUMENT_START


def _fields(line: str, separator: str | None) -> list[str]:
    if not line.strip():
        return []
    return [field.strip(" ") for field in line.split(separator)]


def _drop_empty_last(rows: Sequence[LocatedFields]) -> None:
    """Remove last columns that are empty for all words, in place."""
    words = [row for _, row in rows if row and not row[0].startswith("#")]
    while words and all(len(row) > 1 and not row[-1] for row in words):
        for row in words:
            row.pop()


def _certain_tags(rows: Sequence[LocatedFields], num_columns: int) -> set[str] | None:
    """Return the last columns of rows that are certainly words; None if words are numbered."""
    tags: set[str] = set()
    is_numbered, in_sentence = True, False
    for _, row in rows:
        if _is_boundary(row):
            in_sentence = False
        elif len(row) == num_columns and (in_sentence or not row[0].startswith("#")):
            in_sentence = True
            tags.add(row[-1])
            is_numbered = is_numbered and (row[0].startswith("#") or bool(NUMBER.fullmatch(row[0])))
    return None if is_numbered and num_columns > 1 else tags


def _is_comment(
    row: Sequence[str], num_columns: int, tags: set[str] | None, is_inside: bool
) -> bool:
    if len(row) != num_columns or tags is None:
        return True
    is_tag = row[-1] in tags or row[-1] == "#" or _SPAN_TAG.fullmatch(row[-1])
    return num_columns > 1 and not is_inside and not is_tag
