"""Files of tagged words: CoNLL-U, the IOB2 files of Universal NER, and plain CoNLL columns.

Three layouts, all with one word on a line and an empty line after a sentence:

- *CoNLL-U* (``.conllu``): ten columns set apart by tabs. Words are the syntactic words; the lines
  of a multiword token (``19-20``) and of an empty node (``8.1``) are left out, as in the evaluation
  of Universal Dependencies.
- *numbered*: the first column counts the words of the sentence, the second holds the word, the
  third its tag (the ``.iob2`` files of Universal NER).
- *plain*: the first column holds the word, the last its tag (CoNLL-2000, CoNLL-2003).

A line that begins with ``#`` is a comment, unless it has as many columns as the words have: plain
files know no comments, and ``#`` is a word there. ``-DOCSTART-`` sentences are left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.tasks.formats.lines import read_lines, suffix_of
from bertwright.tasks.formats.reader import Reader


@dataclass(frozen=True)
class Layout:
    """In which column the word stands, and in which the tags of each name."""

    word: int
    tags: dict[str, int]
    num_columns: int
    """How many there must be for the tags to be there."""


CONLLU = Layout(word=1, tags={"upos": 3, "xpos": 4, "feats": 5}, num_columns=10)
NUMBERED = Layout(word=1, tags={"tag": 2}, num_columns=3)
PLAIN = Layout(word=0, tags={"tag": -1}, num_columns=2)

Row = tuple[int, list[str]]
"""The number of a line, and its columns."""

LONGEST_SENTENCE = 1000
"""Lines in which a file of columns has come to the end of a sentence."""

_RANGE_OR_EMPTY_NODE = re.compile(r"\d+[-.]\d+")


class TagReader(Reader):
    """The sentences of a file with the tags of one column: upos, xpos, feats (CoNLL-U) or tag."""

    kind: Literal["tagged"] = "tagged"
    column: str = "tag"

    def claims(self, path: Path) -> bool:
        """Columns go by ``.txt`` as well (CoNLL-2003): the first lines that stand together before
        an empty one have as many words each, and more than one."""
        if suffix_of(path) != ".txt":
            return False
        widths: list[int] = []
        for _, line in islice(read_lines(path), LONGEST_SENTENCE):
            if line.startswith("#"):
                continue
            if line.strip():
                widths.append(len(line.split("\t" if "\t" in line else None)))
            elif len(widths) > 1:
                return len(set(widths)) == 1 and widths[0] > 1
            else:
                widths = []
        return False

    def read(self, path: Path, labelled: bool = True) -> list[TaggedWords]:
        """Errors: UserError, naming file and line, for a column that the layout does not have, a
        row of another width, words wrongly counted, a missing tag."""
        return _read(path, self.column if labelled else None)


def _read(path: Path, column: str | None) -> list[TaggedWords]:
    sentences = list(sentences_of(path))
    if suffix_of(path) == ".conllu":
        layout = CONLLU
        sentences = [syntactic_words(path, rows) for rows in sentences]
    else:
        layout = NUMBERED if all(map(_is_numbered, sentences)) else PLAIN
    if column is not None and column not in layout.tags:
        raise UserError(f"{path}: no column {column!r}{did_you_mean(column, layout.tags)}")
    read = [_tagged(path, rows, layout, column) for rows in sentences]
    found = [sentence for sentence in read if sentence.words != ("-DOCSTART-",)]
    if not found:
        raise UserError(f"{path} holds no sentences")
    return found


def sentences_of(path: Path) -> Iterator[list[Row]]:
    """The rows of every sentence, all of one width."""
    lines = list(read_lines(path))
    begin, first = next(
        ((n, line) for n, line in lines if line.strip() and not line.startswith("#")), (0, "")
    )
    separator = "\t" if "\t" in first else None
    width = len(first.split(separator))
    sentence: list[Row] = []
    for number, line in lines:
        row = line.split(separator) if line.strip() else []
        if not row:
            if sentence:
                yield sentence
            sentence = []
        elif len(row) == width:
            sentence.append((number, row))
        elif not row[0].startswith("#"):
            raise UserError(
                f"{path} line {number} has {len(row)} columns instead of {width}, which line "
                f"{begin} has: all lines of a file have as many"
            )
    if sentence:
        yield sentence


def _is_numbered(rows: Sequence[Row]) -> bool:
    return all(
        len(row) > 1 and row[0] == str(expected) for expected, (_, row) in enumerate(rows, start=1)
    )


def syntactic_words(path: Path, rows: Sequence[Row]) -> list[Row]:
    words = [(number, row) for number, row in rows if not _RANGE_OR_EMPTY_NODE.fullmatch(row[0])]
    for expected, (number, row) in enumerate(words, start=1):
        if row[0] != str(expected):
            raise UserError(f"{path} line {number}: word number {row[0]!r} instead of {expected}")
    return words


def _tagged(path: Path, rows: Sequence[Row], layout: Layout, column: str | None) -> TaggedWords:
    words = tuple(row[layout.word] for _, row in rows)
    where = f"{path} line {rows[0][0]}"
    if column is None:
        return TaggedWords(words, where=where)
    place = layout.tags[column]
    for number, row in rows:
        if len(row) < layout.num_columns or not row[place]:
            raise UserError(f"{path} line {number}: no {column} for the word {row[layout.word]!r}")
    return TaggedWords(words, tuple(row[place] for _, row in rows), where)
