"""Layout: how a stretch of the stream lies in a row.

Where a document ends within a row a *joint* of special tokens is inserted: an extra separator where
documents see each other, an end and a start where they are isolated.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Rows of ``length`` places: start, text with joints, end, padding; where they are not
    ``framed``, text with joints alone."""

    split: "Split"
    specials: "Specials"
    length: int
    isolated: bool
    framed: bool = True

    @property
    def first(self) -> int:
        """Where the text of a row begins."""
        return 1 if self.framed else 0

    @property
    def room(self) -> int:
        """Places of a row for text with joints."""
        return self.length - 2 * self.first

    @property
    def joint(self) -> tuple[int, ...]:
        """What stands between two documents of a row."""
        return (self.specials.end, self.specials.start) if self.isolated else (self.specials.end,)

    def rows(
        self, start: NDArray[np.int64], count: NDArray[np.int64], lead: NDArray[np.int64] | int = 0
    ) -> Rows:
        """Rows of at most ``count`` pieces (B,) from ``start`` (B,), cut where a row is full.

        No joint stands before a document that begins a row, except the last ``lead`` (B,) tokens
        of it, for rows that were cut within a joint.
        """
        pieces, marks = read(self.split, start, self.room)
        offset = np.arange(self.room)
        given = offset < count[:, None]
        begins = given & (marks & DOCUMENT_START != 0)
        before = len(self.joint) * np.cumsum(begins, axis=1)
        missing = before[:, 0] - lead * begins[:, 0]
        place = self.first + offset + before - missing[:, None]
        end = self.first + np.minimum(count + before[:, -1] - missing, self.room)

        kept = given & (place < self.first + self.room)
        text = np.zeros((len(start), self.length), np.bool_)
        text.ravel()[(place + self.length * np.arange(len(start))[:, None])[kept]] = True
        shown = np.full(text.shape, self.specials.pad, np.int32)
        if self.framed:
            shown[:, 0] = self.specials.start
            shown[np.arange(len(start)), end] = self.specials.end
        shown[text] = pieces[kept]
        heads = self._insert_joints(shown, begins, place)
        word, sentence = (
            _indices(text, kept, marks & (mark | DOCUMENT_START) != 0)
            for mark in (WORD_START, SENTENCE_START)
        )
        real = np.arange(self.length) < end[:, None] + self.first
        position, document = self._isolate(heads, real)
        language = self._language(start, begins, text, heads)
        coordinates = Coordinates(position, None, document, word, sentence, language=language)
        known = (self.split.phrases, self.split.capitals, self.split.occurrences)
        if any(own is not None for own in known):
            source = np.full(text.shape, -1, np.int64)
            source[text] = (start[:, None] + offset)[kept]
            coordinates = annotated(coordinates, self.split, source)
        cut = None
        if self.framed:
            ends = _begin_documents(self.split, start + kept.sum(axis=1))
            cut = _cut(text, heads, real, begins[:, 0], ends)
        return Rows(shown, coordinates, ~text, cut=cut)

    def _insert_joints(
        self, shown: NDArray[np.int32], begins: NDArray[np.bool_], place: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Write the joints before the documents; returns where isolated documents begin (B, L)."""
        heads = np.zeros(shown.shape, np.bool_)
        heads[:, 0] = self.framed
        row, offset = np.nonzero(begins)
        first = place[row, offset] - len(self.joint)
        for i, piece in enumerate(self.joint):
            inside = (first + i >= self.first) & (first + i < self.first + self.room)
            shown[row[inside], first[inside] + i] = piece
            heads[row[inside], first[inside] + i] |= piece == self.specials.start
        return heads

    def _language(
        self,
        start: NDArray[np.int64],
        begins: NDArray[np.bool_],
        text: NDArray[np.bool_],
        heads: NDArray[np.bool_],
    ) -> NDArray[np.int32] | None:
        """The language of every place (B, L): that of the next piece at the head of a document,
        and of the last piece at what stands behind one."""
        if self.split.languages is None:
            return None
        after_first = np.cumsum(begins, axis=1) - begins[:, :1]
        of_piece = languages_of(self.split, document_at(self.split, start)[:, None] + after_first)
        number = np.cumsum(text, axis=1) - (text | ~heads)
        last = text.sum(axis=1, keepdims=True) - 1
        return np.take_along_axis(of_piece, np.clip(number, 0, last), axis=1)

    def _isolate(
        self, heads: NDArray[np.bool_], real: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32] | None, NDArray[np.int32]]:
        """Position and document of every place (B, L); in a row without a frame document 0 is the
        one that the row before was in."""
        number = np.cumsum(heads, axis=1, dtype=np.int32) - self.framed
        document = np.where(real, number, np.int32(-1))
        if not self.isolated:
            return None, document
        places = np.arange(self.length, dtype=np.int32)
        head = np.maximum.accumulate(np.where(heads, places, np.int32(0)), axis=1)
        return np.where(real, places - head, np.int32(0)), document


def annotated(coordinates: Coordinates, split: "Split", source: NDArray[np.int64]) -> Coordinates:
    """With what is known of places that come from the positions ``source`` (B, L) of a split, -1
    where nothing does: phrases, entities, capitals, what stands elsewhere."""
    if split.phrases is not None and split.entities is not None:
        phrase, entity = split.phrases.at(source), split.entities.at(source)
        coordinates = replace(coordinates, phrase=phrase, entity=entity)
    if split.capitals is not None:
        found = np.searchsorted(split.capitals, source)
        found = np.minimum(found, max(len(split.capitals) - 1, 0))
        there = split.capitals[found] == source if len(split.capitals) else source < -1
        coordinates = replace(coordinates, capital=there.astype(np.int32))
    if split.occurrences is not None:
        coordinates = replace(coordinates, elsewhere=split.occurrences.elsewhere(source))
    return coordinates


def _cut(
    text: NDArray[np.bool_],
    heads: NDArray[np.bool_],
    real: NDArray[np.bool_],
    begins: NDArray[np.bool_],
    ends: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """The special tokens (B, L) of framed rows that have no text at their side, and those of the
    frame, unless the text of the row ``begins`` or ``ends`` (B,) as a document does."""
    before = np.pad(text[:, 1:], ((0, 0), (0, 1)))
    behind = np.pad(text[:, :-1], ((0, 0), (1, 0)))
    cut = real & ~text & ~np.where(heads, before, behind)
    cut[:, 0] |= ~begins
    cut[np.arange(len(cut)), real.sum(axis=1) - 1] |= ~ends
    return cut


def _begin_documents(split: "Split", position: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a document begins at each position of the stream, or it is the end of the split."""
    starts = split.document_starts
    return starts[np.searchsorted(starts, position)] == position


def document_at(split: "Split", position: NDArray[np.int64]) -> NDArray[np.int64]:
    """The document in which each position of the stream lies."""
    found = np.searchsorted(split.document_starts, position, side="right") - 1
    return np.minimum(found, split.num_documents - 1)


def languages_of(split: "Split", document: NDArray[np.int64]) -> NDArray[np.int32]:
    """The languages of documents, of a split that knows them; those beyond its end: any."""
    assert split.languages is not None
    return split.languages[np.minimum(document, split.num_documents - 1)].astype(np.int32)


def read(
    split: "Split", start: NDArray[np.int64], length: int
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """``split.gather`` for rows that may reach past the end of the split: there, anything."""
    within = min(length, split.num_pieces)
    first = np.minimum(start, split.num_pieces - within)
    pieces, marks = split.gather(first, within)
    if within == length and np.array_equal(first, start):
        return pieces, marks
    column = np.minimum(np.arange(length) + (start - first)[:, None], within - 1)
    return np.take_along_axis(pieces, column, axis=1), np.take_along_axis(marks, column, axis=1)


def _indices(
    text: NDArray[np.bool_], kept: NDArray[np.bool_], begins: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """The index within its row of the word or sentence of each place (B, L), -1 outside text.

    A row that begins within a word begins with the rest of it as its word 0.
    """
    begins[:, 0] = True
    index = np.full(text.shape, -1, np.int32)
    index[text] = (np.cumsum(begins, axis=1, dtype=np.int32) - 1)[kept]
    return index
