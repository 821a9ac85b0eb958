"""Files of tagged words: CoNLL-U, the IOB2 files of Universal NER, and plain CoNLL columns.

Three layouts of columns:

- *CoNLL-U* (``.conllu``, or ten numbered columns separated by tabs). Words are the syntactic words;
  the lines of a multiword token (``19-20``) and of an empty node (``8.1``) are skipped, as in the
  evaluation of Universal Dependencies.
- *numbered*: the number of the word in the sentence, the word, its tag (the ``.iob2`` files of
  Universal NER).
- *plain*: the first column holds the word, the last its tag (CoNLL-2000, CoNLL-2003).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import LocatedLine, format_suffix, read_located_lines
from bertwright.tasks.formats.conll_columns import (
    NUMBER,
    LocatedFields,
    has_word_numbers,
    read_sentences,
)
from bertwright.tasks.formats.example_reader import ExampleReader
from bertwright.tasks.formats.examples import TaggedSentence


@dataclass(frozen=True)
class ColumnLayout:
    """The columns of the word and of each kind of tag."""

    word_column: int
    tag_columns: dict[str, int]
    min_columns: int
    """Minimum number of columns of a row with tags."""


CONLLU = ColumnLayout(
    word_column=1, tag_columns={"upos": 3, "xpos": 4, "feats": 5, "head": 6}, min_columns=10
)
NUMBERED = ColumnLayout(word_column=1, tag_columns={"tag": 2}, min_columns=3)
PLAIN = ColumnLayout(word_column=0, tag_columns={"tag": -1}, min_columns=2)


class TaggedSentenceReader(ExampleReader):
    """Sentences with the tags of one column: upos, xpos, feats, head (CoNLL-U) or tag."""

    kind: Literal["tagged"] = "tagged"
    column: str = "tag"

    def matches(self, lines: Sequence[LocatedLine], labels: Sequence[str]) -> bool:
        """Return whether most lines end with a tag of the training data."""
        rows = [line.split("\t" if "\t" in line else None) for _, line in lines if line.strip()]
        layouts = [NUMBERED, PLAIN] if self.column == "tag" else [CONLLU]
        num_matching = [
            sum(
                len(row) >= layout.min_columns and _tag_of(row, layout, self.column) in labels
                for row in rows
            )
            for layout in layouts
        ]
        words = [row for row in rows if len(row) > 1 and not row[0].startswith("#")]
        return bool(words) and 2 * max(num_matching) > len(words)

    def parse_lines(self, name: str, lines: Iterable[LocatedLine]) -> list[TaggedSentence]:
        return _parse_sentences(name, lines, None, is_conllu=False)

    def read(self, path: Path, with_labels: bool = True) -> list[TaggedSentence]:
        """Read the sentences of a file.

        Errors: UserError with file and line, for a column that the layout does not have, a row of
        another width, wrong word numbers, or a missing tag.
        """
        column = self.column if with_labels else None
        return _parse_sentences(
            str(path), read_located_lines(path), column, format_suffix(path) == ".conllu"
        )


def _parse_sentences(
    name: str, lines: Iterable[LocatedLine], column: str | None, is_conllu: bool
) -> list[TaggedSentence]:
    sentences = list(read_sentences(lines))
    is_numbered = all(map(has_word_numbers, sentences))
    layout = NUMBERED if is_numbered else PLAIN
    if is_conllu or (is_numbered and sentences and len(sentences[0][0][1]) == CONLLU.min_columns):
        layout = CONLLU
    if column is not None and column not in layout.tag_columns:
        raise UserError(f"{name}: no column {column!r}{did_you_mean(column, layout.tag_columns)}")
    if layout is not PLAIN:
        sentences = [syntactic_words(rows) for rows in sentences]
    tagged_sentences = [_tagged_sentence(rows, layout, column) for rows in sentences]
    if not tagged_sentences:
        raise UserError(f"{name} has no sentences")
    return tagged_sentences


def syntactic_words(rows: Sequence[LocatedFields]) -> list[LocatedFields]:
    """Return the rows of words, without multiword tokens and empty nodes.

    Errors: UserError with the line, for a sentence without words and for words not numbered from 1
    (or 0).
    """
    words = [row for row in rows if row[1][0].isdecimal() or not NUMBER.fullmatch(row[1][0])]
    if not words:
        raise UserError(f"{rows[0][0]}: a sentence without words: remove it")
    start = 0 if words[0][1][0] == "0" else 1
    for expected, (location, row) in enumerate(words, start):
        if row[0] != str(expected):
            raise UserError(f"{location}: word number {row[0]!r} instead of {expected}")
    return words


def _tag_of(row: Sequence[str], layout: ColumnLayout, column: str) -> str:
    return row[layout.tag_columns[column]]


def _tagged_sentence(
    rows: Sequence[LocatedFields], layout: ColumnLayout, column: str | None
) -> TaggedSentence:
    first_location = rows[0][0]
    for location, row in rows:
        if len(row) <= layout.word_column or not row[layout.word_column]:
            raise UserError(f"{location}: the word column is empty: write the word there")
    words = tuple(row[layout.word_column] for _, row in rows)
    if column is None:
        return TaggedSentence(words, location=first_location)
    for location, row in rows:
        tag = _tag_of(row, layout, column) if len(row) >= layout.min_columns else ""
        # An underscore means "not annotated"; it is not a universal tag.
        if not tag or (column == "upos" and tag == "_"):
            raise UserError(f"{location}: no {column} for the word {row[layout.word_column]!r}")
    tags = tuple(_tag_of(row, layout, column) for _, row in rows)
    return TaggedSentence(words, tags, first_location)
