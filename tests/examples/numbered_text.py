"""Text small enough to see through: the piece at stream position p is p + 100."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from hypothesis import strategies
from numpy.typing import NDArray

from bertwright.examples.assembly import Assembly, RowSource
from bertwright.examples.coordinates import Rows
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.text.occurrences import Occurrences
from bertwright.text.shards import Stretches, Turns
from bertwright.text.tokenizers import Specials

FIRST_PIECE = 100
PAD, CLS, SEP, MASK = 0, 2, 3, 4
SPECIALS = Specials(pad=PAD, unknown=1, start=CLS, end=SEP, mask=MASK)

Documents = Sequence[Sequence[Sequence[int]]]  # sizes of words in pieces, by sentence and document

sentences = strategies.lists(strategies.integers(1, 4), min_size=1, max_size=12)
documents = strategies.lists(
    strategies.lists(sentences, min_size=1, max_size=6), min_size=1, max_size=8
)


@dataclass
class NumberedSplit:
    """What an assembly reads of a split, with nothing behind it.

    Documents are in three languages by turns; of two neighbours the second translates the first.
    """

    document_starts: NDArray[np.int64]
    sentence_starts: NDArray[np.int64]
    word_starts: NDArray[np.int64]
    name: str = "train"

    @classmethod
    def of(cls, text: Documents) -> "NumberedSplit":
        words = np.cumsum([0, *(w for document in text for sentence in document for w in sentence)])
        sizes = [len(sentence) for document in text for sentence in document]
        sentence_starts = words[np.cumsum([0, *sizes])]
        document_starts = sentence_starts[np.cumsum([0, *(len(document) for document in text)])]
        return cls(document_starts, sentence_starts, words)

    def __post_init__(self) -> None:
        self.num_pieces = int(self.document_starts[-1])
        self.num_documents = len(self.document_starts) - 1
        self.num_sentences = len(self.sentence_starts) - 1
        self.languages = np.arange(self.num_documents) % 3
        self.language_names = ("en", "de", "fr")
        self.translations = np.arange(1, self.num_documents, 2)
        self.phrases: Stretches | None = None
        self.entities: Stretches | None = None
        self.turns: Turns | None = None
        self.capitals: NDArray[np.int64] | None = None
        self.occurrences: Occurrences | None = None
        self.marks = np.zeros(self.num_pieces, np.uint8)
        self.marks[self.word_starts[:-1]] |= WORD_START
        self.marks[self.sentence_starts[:-1]] |= SENTENCE_START
        self.marks[self.document_starts[:-1]] |= DOCUMENT_START

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        at = starts[:, None] + np.arange(length)
        assert at.min() >= 0
        assert at.max() < self.num_pieces
        return (FIRST_PIECE + at).astype(np.int32), self.marks[at]

    def pieces_of(self, text: str) -> list[int]:
        """Text is the numbers of pieces."""
        return [int(number) for number in text.split()]

    def document_of(self, pieces: NDArray[Any]) -> NDArray[np.int64]:
        return np.searchsorted(self.document_starts, pieces - FIRST_PIECE, side="right") - 1

    def word_of(self, pieces: NDArray[Any]) -> NDArray[np.int64]:
        return np.searchsorted(self.word_starts, pieces - FIRST_PIECE, side="right") - 1


def planned(assembly: Assembly, text: Documents, seed: int = 0) -> tuple[RowSource, NumberedSplit]:
    split = NumberedSplit.of(text)
    if "dialogues" in assembly.needs:
        turns = split.sentence_starts[:-1]
        split.turns = Turns(turns, (np.arange(len(turns)) % 2).astype(np.uint8))
    return assembly.plan(cast(Any, split), SPECIALS, seed), split


def all_rows(source: RowSource, epoch: int = 0) -> Rows:
    return source.rows(np.arange(source.num_rows), epoch)


def text_of(rows: Rows) -> list[NDArray[np.int32]]:
    """The pieces of each row that are text."""
    return [pieces[~special] for pieces, special in zip(rows.pieces, rows.special, strict=True)]
