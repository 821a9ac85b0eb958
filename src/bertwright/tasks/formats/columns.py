"""Sentences in columns: one word on a line, an empty line after a sentence (CoNLL).

Columns are set apart by tabs where the first word has one, else by blanks; an empty last column of
all lines is none. ``-DOCSTART-`` ends a sentence and is left out, however many columns it has.

A line that begins with ``#`` and has another number of columns than the words is a comment. With as
many it may be one, too: numbered words have no ``#`` for their number, and before the first word of
a sentence it is a word only if its last column is a tag.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from bertwright.errors import UserError
from bertwright.tasks.formats.lines import Line

Row = tuple[str, list[str]]
"""Where a line stands, and its columns."""

DOCUMENT_START = "-DOCSTART-"

NUMBER = re.compile(r"\d+([-.]\d+)?")
"""Of a word, of a multiword token (``19-20``) or of an empty node (``8.1``)."""

_SPAN_TAG = re.compile(r"O|[BILUOESMW]-.+")


def sentences_of(lines: Iterable[Line]) -> Iterator[list[Row]]:
    """Return the rows of every sentence, all of one width.

    Errors: UserError, naming the line, for a row of another width than the first.
    """
    stated = list(lines)
    first = next((at for at in stated if _is_word(at[1])), None)
    if first is None:
        return
    separator = "\t" if "\t" in first[1].strip() else None
    rows = [(where, _fields(line, separator)) for where, line in stated]
    _drop_empty_last(rows)
    width = next(len(row) for where, row in rows if where == first[0])
    begin = next(where for where, row in rows if len(row) == width and row[0][:1] != "#")
    tags = _known_tags(rows, width)
    sentence: list[Row] = []
    for where, row in rows:
        if _is_between(row):
            if sentence:
                yield sentence
            sentence = []
        elif row[0].startswith("#") and _is_comment(row, width, tags, bool(sentence)):
            continue
        elif len(row) != width:
            raise UserError(
                f"{where} has {len(row)} columns instead of {width}, which line "
                f"{begin.rpartition(' ')[2]} has: all lines of a file have as many"
            )
        else:
            sentence.append((where, row))
    if sentence:
        yield sentence


def are_numbered(rows: Sequence[Row]) -> bool:
    """Return whether the first column counts the words of a sentence."""
    if not all(len(row) > 1 and NUMBER.fullmatch(row[0]) for _, row in rows):
        return False
    numbers = [int(row[0]) for _, row in rows if row[0].isdecimal()]
    first = numbers[0] if numbers else -1
    return first in (0, 1) and numbers == [*range(first, first + len(numbers))]


def _is_word(line: str) -> bool:
    """Return whether a line is certainly a row of a word."""
    text = line.strip()
    return bool(text) and not text.startswith("#") and text.split()[0] != DOCUMENT_START


def _is_between(row: Sequence[str]) -> bool:
    """Return whether a line stands between sentences."""
    return not row or row[0].partition(" ")[0] == DOCUMENT_START


def _fields(line: str, separator: str | None) -> list[str]:
    if not line.strip():
        return []
    return [field.strip(" ") for field in line.split(separator)]


def _drop_empty_last(rows: Sequence[Row]) -> None:
    """Take off the last column of all words where it is empty in all of them, in place."""
    words = [row for _, row in rows if row and not row[0].startswith("#")]
    while words and all(len(row) > 1 and not row[-1] for row in words):
        for row in words:
            row.pop()


def _known_tags(rows: Sequence[Row], width: int) -> set[str] | None:
    """Return the last columns of the rows that are certainly words; None where words are numbered,
    which ``#`` never is."""
    tags: set[str] = set()
    numbered, within = True, False
    for _, row in rows:
        if _is_between(row):
            within = False
        elif len(row) == width and (within or not row[0].startswith("#")):
            within = True
            tags.add(row[-1])
            numbered = numbered and (row[0].startswith("#") or bool(NUMBER.fullmatch(row[0])))
    return None if numbered and width > 1 else tags


def _is_comment(row: Sequence[str], width: int, tags: set[str] | None, within: bool) -> bool:
    if len(row) != width or tags is None:
        return True
    is_tag = row[-1] in tags or row[-1] == "#" or _SPAN_TAG.fullmatch(row[-1])
    return width > 1 and not within and not is_tag
