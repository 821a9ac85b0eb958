"""Layout of pairs: how two stretches of the stream lie in a row."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.assembly.layout import annotated, document_at, languages_of, read
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.text.marks import SENTENCE_START, WORD_START

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Stretches of the stream, one a row: where they start and how many pieces they have, (B,)."""

    start: NDArray[np.int64]
    count: NDArray[np.int64]

    def where(self, kept: NDArray[np.bool_], other: "Texts") -> "Texts":
        """These, and ``other`` where they are not kept."""
        start = np.where(kept, self.start, other.start)
        return Texts(start, np.where(kept, self.count, other.count))


@dataclass(frozen=True, slots=True, eq=False)
class PairLayout:
    """Rows of ``length`` places: [CLS] A [SEP] B [SEP], with so many ``separators`` between."""

    split: "Split"
    specials: "Specials"
    length: int
    separators: int = 1

    @property
    def room(self) -> int:
        """Places for the pieces of both texts."""
        return self.length - 2 - self.separators

    def start_of_b(self, a: Texts) -> NDArray[np.int64]:
        """The place at which the second text begins, (B,)."""
        return 1 + a.count + self.separators

    def rows(self, a: Texts, b: Texts, relation: NDArray[np.int64]) -> Rows:
        """Rows of texts that fit, which are this ``relation`` (B,) to each other."""
        length, room = self.length, self.room
        place = np.arange(length)
        start_of_b = self.start_of_b(a)[:, None]
        end = start_of_b + b.count[:, None]
        in_a = (place >= 1) & (place <= a.count[:, None])
        in_b = (place >= start_of_b) & (place < end)
        text = in_a | in_b

        pieces, marks = read(self.split, np.stack([a.start, b.start], axis=1).ravel(), room)
        source = np.clip(np.where(in_b, room + place - start_of_b, place - 1), 0, 2 * room - 1)
        pieces = np.take_along_axis(pieces.reshape(-1, 2 * room), source, axis=1)
        marks = np.take_along_axis(marks.reshape(-1, 2 * room), source, axis=1)

        shown = np.where(text, pieces, np.int32(self.specials.end))
        shown[:, 0] = self.specials.start
        real = place <= end
        shown[~real] = self.specials.pad
        begins = (place == 1) | (place == start_of_b)
        word, sentence = (
            np.where(text, np.cumsum(begins | (marks & mark != 0) & text, axis=1) - 1, -1)
            for mark in (WORD_START, SENTENCE_START)
        )
        segment = (place > a.count[:, None] + 1) & real
        language = None
        if self.split.languages is not None:
            of_a, of_b = (
                languages_of(self.split, document_at(self.split, side.start)) for side in (a, b)
            )
            language = np.where(segment, of_b[:, None], of_a[:, None])
        coordinates = Coordinates(
            segment=segment.astype(np.int32),
            document=np.where(real, np.int32(0), np.int32(-1)),
            word=word.astype(np.int32),
            sentence=sentence.astype(np.int32),
            language=language,
        )
        start = np.where(in_b, b.start[:, None] - start_of_b, a.start[:, None] - 1)
        coordinates = annotated(coordinates, self.split, np.where(text, start + place, -1))
        return Rows(shown, coordinates, ~text, relation)


def longest_first(
    num_a: NDArray[np.int64] | int, num_b: NDArray[np.int64] | int, room: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pieces left of two texts when the longer, B when they are equal, loses one until both fit, as
    in the code of Devlin et al. 2019."""
    num_a = np.minimum(num_a, np.maximum(room - num_b, (room + 1) // 2))
    return num_a, np.minimum(num_b, room - num_a)
