"""Files of tagged words: CoNLL-U, the IOB2 files of Universal NER, and plain CoNLL columns.

Three layouts of sentences in columns:

- *CoNLL-U* (``.conllu``, or ten numbered columns set apart by tabs). Words are the syntactic words;
  the lines of a multiword token (``19-20``) and of an empty node (``8.1``) are left out, as in the
  evaluation of Universal Dependencies.
- *numbered*: the first column counts the words of the sentence, the second holds the word, the
  third its tag (the ``.iob2`` files of Universal NER).
- *plain*: the first column holds the word, the last its tag (CoNLL-2000, CoNLL-2003).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.formats.columns import NUMBER, Row, are_numbered, sentences_of
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.tasks.formats.lines import Line, located_lines, suffix_of
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


class TagReader(Reader):
    """The sentences of a file with the tags of one column: upos, xpos, feats (CoNLL-U) or tag."""

    kind: Literal["tagged"] = "tagged"
    column: str = "tag"

    def claims(self, lines: Sequence[Line], labels: Sequence[str]) -> bool:
        """Columns as those of the training: most lines end with one of its tags."""
        rows = [line.split("\t" if "\t" in line else None) for _, line in lines if line.strip()]
        layouts = [NUMBERED, PLAIN] if self.column == "tag" else [CONLLU]
        known = [
            sum(
                len(row) >= layout.num_columns and _tag(row, layout, self.column) in labels
                for row in rows
            )
            for layout in layouts
        ]
        words = [row for row in rows if len(row) > 1 and not row[0].startswith("#")]
        return bool(words) and 2 * max(known) > len(words)

    def parse(self, name: str, lines: Iterable[Line]) -> list[TaggedWords]:
        return _read(name, lines, None, is_conllu=False)

    def read(self, path: Path, labelled: bool = True) -> list[TaggedWords]:
        """Errors: UserError, naming file and line, for a column that the layout does not have, a
        row of another width, words wrongly counted, a missing tag."""
        column = self.column if labelled else None
        return _read(str(path), located_lines(path), column, suffix_of(path) == ".conllu")


def _read(
    name: str, lines: Iterable[Line], column: str | None, is_conllu: bool
) -> list[TaggedWords]:
    sentences = list(sentences_of(lines))
    numbered = all(map(are_numbered, sentences))
    layout = NUMBERED if numbered else PLAIN
    if is_conllu or (numbered and sentences and len(sentences[0][0][1]) == CONLLU.num_columns):
        layout = CONLLU
    if column is not None and column not in layout.tags:
        raise UserError(f"{name}: no column {column!r}{did_you_mean(column, layout.tags)}")
    if layout is not PLAIN:
        sentences = [syntactic_words(rows) for rows in sentences]
    found = [_tagged(rows, layout, column) for rows in sentences]
    if not found:
        raise UserError(f"{name} holds no sentences")
    return found


def syntactic_words(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of words, without those of multiword tokens and of empty nodes.

    Errors: UserError, naming the line, for a sentence without words, or one whose words are not
    counted from 1 (or 0).
    """
    words = [at for at in rows if at[1][0].isdecimal() or not NUMBER.fullmatch(at[1][0])]
    if not words:
        raise UserError(f"{rows[0][0]}: a sentence without words: remove it")
    start = 0 if words[0][1][0] == "0" else 1
    for expected, (where, row) in enumerate(words, start):
        if row[0] != str(expected):
            raise UserError(f"{where}: word number {row[0]!r} instead of {expected}")
    return words


def _tag(row: Sequence[str], layout: Layout, column: str) -> str:
    return row[layout.tags[column]]


def _tagged(rows: Sequence[Row], layout: Layout, column: str | None) -> TaggedWords:
    where = rows[0][0]
    for at, row in rows:
        if len(row) <= layout.word or not row[layout.word]:
            raise UserError(f"{at}: the column of the word is empty: write the word there")
    words = tuple(row[layout.word] for _, row in rows)
    if column is None:
        return TaggedWords(words, where=where)
    for at, row in rows:
        tag = _tag(row, layout, column) if len(row) >= layout.num_columns else ""
        # Of the universal tags none is an underscore, which stands for what is not annotated.
        if not tag or (column == "upos" and tag == "_"):
            raise UserError(f"{at}: no {column} for the word {row[layout.word]!r}")
    return TaggedWords(words, tuple(_tag(row, layout, column) for _, row in rows), where)
