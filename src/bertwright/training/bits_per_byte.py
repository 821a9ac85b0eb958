"""Bits per byte of hidden words: a loss that can be compared between tokenizers and objectives.

Some 15 % of the words of held-out documents are asked for. The nats that the model pays for all
their pieces, by ln 2 and by the UTF-8 bytes of the words, are bits per byte. A masked model sees
masks for them, and all the rest; a permuted one all the rest, and those of them that come before in
its order; a causal model what stands before each. Which words are asked for is a hash of the
document's number and of the bytes of the words before it in the document, so they are the same for
every tokenizer (counting words instead would lose step after a piece that covers two words).
Documents are cut into windows between words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.selection import Chosen
from bertwright.examples.vocabulary import Vocabulary
from bertwright.objectives.objective import Asking, Objective
from bertwright.randomness import Draw, Permutation, key, uniform
from bertwright.text.marks import WORD_START
from bertwright.text.shards import Split
from bertwright.text.tokenizers import Specials

HIDDEN_SHARE = 0.15

KEY = key(0, "bits-per-byte")
"""The same in every run, so that every model is asked for the same words."""


@dataclass(frozen=True)
class HiddenWords:
    """Rows of text, and all pieces of some whole words in them.

    ``num_bytes`` are the UTF-8 bytes of these words, ``num_words`` how many they are.
    """

    rows: Rows
    chosen: Chosen
    num_bytes: int
    num_words: int

    def asked(self, objectives: Mapping[str, Objective], vocabulary: Vocabulary) -> Batch | None:
        """The words as the first of these objectives asks for them that can; None where none can.

        Errors: UserError as of the objective.
        """
        asking = Asking(Draw(KEY, index=np.arange(len(self.rows.pieces))), vocabulary)
        for name, objective in objectives.items():
            asked = objective.ask_for(self.chosen, self.rows, asking)
            if asked is not None:
                rows = objective.within_task(asked[0])
                number = int(rows.real.sum())
                return Batch(rows.pieces, rows.coordinates, {name: asked[1]}, number)
        return None


@dataclass(frozen=True)
class _Window:
    """A stretch of a document in a language, and where in it the hidden pieces lie."""

    language: int | None
    pieces: NDArray[np.int32]
    hidden: NDArray[np.int64]
    num_bytes: int
    num_words: int


def hidden_words(
    split: Split,
    specials: Specials,
    opening: int,
    length: int,
    most_bytes: int,
    num_rows: int = 32,
) -> Iterator[HiddenWords]:
    """Documents in a fixed random order until their words make ``most_bytes``, in batches.

    A row has ``length`` places; its text stands between the piece ``opening`` and the end.
    """
    windows = _windows(split, length - 2, most_bytes)
    while some := list(islice(windows, num_rows)):
        yield _rows(some, specials, opening, length)


def _windows(split: Split, room: int, most_bytes: int) -> Iterator[_Window]:
    order = Permutation(max(split.num_documents, 1), KEY)
    left = most_bytes
    for number in range(split.num_documents):
        document = int(order(number))
        start, stop = (int(p) for p in split.document_starts[document : document + 2])
        first = np.flatnonzero(split.marks(start, stop) & WORD_START)
        sizes = split.word_bytes(start, stop).astype(np.int64)
        before = np.cumsum(sizes) - sizes
        hidden = (uniform(KEY, document, before) < HIDDEN_SHARE) & (before < left)
        last = np.append(first[1:], stop - start)
        if (before >= left).any():
            stop = start + int(first[before >= left][0])
        for begin, end in _cuts(first, stop - start, room):
            inside = hidden & (first >= begin) & (last <= end)
            places = [np.arange(first[w], last[w]) - begin for w in np.flatnonzero(inside)]
            yield _Window(
                None if split.languages is None else int(split.languages[document]),
                split.pieces(start + begin, start + end),
                np.concatenate([np.empty(0, np.int64), *places]),
                int(sizes[inside].sum()),
                int(inside.sum()),
            )
        left -= int(sizes.sum())
        if left <= 0:
            return


def _cuts(first: NDArray[np.int64], size: int, room: int) -> Iterator[tuple[int, int]]:
    """Stretches of at most ``room`` pieces, cut where words start unless a word is longer."""
    begin = 0
    while begin < size:
        end = min(begin + room, size)
        if end < size:
            start = first[np.searchsorted(first, end, side="right") - 1] if len(first) else 0
            end = int(start) if start > begin else end
        yield begin, end
        begin = end


def _rows(windows: Sequence[_Window], specials: Specials, opening: int, length: int) -> HiddenWords:
    pieces = np.full((len(windows), length), specials.pad, np.int32)
    document = np.full((len(windows), length), -1, np.int32)
    special = np.ones((len(windows), length), np.bool_)
    hidden = np.full((len(windows), length), -1, np.int64)
    for row, window in enumerate(windows):
        size = len(window.pieces)
        pieces[row, : size + 2] = [opening, *window.pieces, specials.end]
        document[row, : size + 2] = 0
        special[row, 1 : size + 1] = False
        hidden[row, 1 + window.hidden] = window.hidden
    language = None
    if windows[0].language is not None:
        spoken = np.array([window.language for window in windows], np.int32)
        language = np.broadcast_to(spoken[:, None], pieces.shape).copy()
    most = max(1, max(len(window.hidden) for window in windows))
    return HiddenWords(
        Rows(pieces, Coordinates(document=document, language=language), special),
        Chosen.listed(hidden, most),
        sum(w.num_bytes for w in windows),
        sum(w.num_words for w in windows),
    )
