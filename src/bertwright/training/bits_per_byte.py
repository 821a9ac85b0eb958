"""Bits per byte of hidden words: a loss that can be compared between tokenizers and objectives.

Some 15 % of the words of held-out documents are asked for. The nats that the model pays for all
their pieces, by ln 2 and by the UTF-8 bytes of the words, are bits per byte. They are asked for in
rounds: the first pieces of all these words, then the second ones, given the first, and so on. So a
word costs what it is worth as a whole, however its pieces are asked for in training, and what reads
both sides, with masks or in a permuted order, sees the same: the words that are not asked for, and
the rounds before. A causal model sees what stands before each piece. Which words are asked for is a
hash of the document's number and of the bytes of the words before it in the document, so they are
the same for every tokenizer (counting words instead would lose step after a piece that covers two
words). Documents are cut into windows between words; a word longer than a window is asked in parts,
one in each window.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.selection import Chosen
from bertwright.examples.vocabulary import Vocabulary
from bertwright.objectives.objective import Objective
from bertwright.randomness import Permutation, key, uniform
from bertwright.text.marks import WORD_START
from bertwright.text.shards import Split
from bertwright.text.tokenizers import Specials

HIDDEN_SHARE = 0.15

KEY = key(0, "bits-per-byte")
"""The same in every run, so that every model is asked for the same words."""


@dataclass(frozen=True)
class HiddenWords:
    """Rows of text, and a round of asking for some whole words in them.

    - ``chosen``: the pieces of this round, one of a word
    - ``hidden``: (B, L) bool, these and those of later rounds
    - ``num_bytes``, ``num_words``: of the words that begin in this round: all in the first, none
      in the others
    """

    rows: Rows
    chosen: Chosen
    hidden: NDArray[np.bool_]
    num_bytes: int
    num_words: int

    def asked(self, objectives: Mapping[str, Objective], vocabulary: Vocabulary) -> Batch | None:
        """The round as the first of these objectives asks it that can; None where none can.

        Errors: UserError as of the objective.
        """
        for name, objective in objectives.items():
            asked = objective.ask_for(self.chosen, self.hidden, self.rows, vocabulary)
            if asked is not None:
                rows = objective.within_task(asked[0])
                number = int(rows.real.sum())
                return Batch(rows.pieces, rows.coordinates, {name: asked[1]}, number)
        return None


@dataclass(frozen=True)
class _Window:
    """A stretch of a document in a language, and the round in which each of its pieces is asked
    for, -1 for never."""

    language: int | None
    pieces: NDArray[np.int32]
    turn: NDArray[np.int64]
    num_bytes: int
    num_words: int


def hidden_words(
    split: Split,
    specials: Specials,
    opening: int,
    length: int,
    most_bytes: int,
    reserved: Collection[int] = (),
    num_rows: int = 32,
) -> Iterator[HiddenWords]:
    """Documents in a fixed random order until their words make ``most_bytes``, in batches, each
    round by round.

    A row has ``length`` places; its text stands between the piece ``opening`` and the end. Words
    of ``reserved`` tokens are not asked for.
    """
    windows = _windows(split, length - 2, most_bytes, reserved)
    while some := list(islice(windows, num_rows)):
        yield _round(0, some, specials, opening, length)
        for number in range(1, 1 + max(int(window.turn.max()) for window in some)):
            left = [window for window in some if (window.turn == number).any()]
            yield _round(number, left, specials, opening, length)


def _windows(
    split: Split, room: int, most_bytes: int, reserved: Collection[int]
) -> Iterator[_Window]:
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
        spelled = np.flatnonzero(np.isin(split.pieces(start, stop), list(reserved)))
        owner = np.searchsorted(first, spelled, side="right") - 1
        hidden[owner[owner >= 0]] = False
        if (before >= left).any():
            stop = start + int(first[before >= left][0])
        for begin, end in _cuts(first, stop - start, room):
            turn = np.full(end - begin, -1, np.int64)
            for word in np.flatnonzero(hidden & (first < end) & (last > begin)):
                # Of a word longer than a window every window asks for its part.
                here, after = max(first[word], begin), min(last[word], end)
                turn[here - begin : after - begin] = np.arange(after - here)
            begins = hidden & (first >= begin) & (first < end)
            yield _Window(
                None if split.languages is None else int(split.languages[document]),
                split.pieces(start + begin, start + end),
                turn,
                int(sizes[begins].sum()),
                int(begins.sum()),
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


def _round(
    number: int, windows: Sequence[_Window], specials: Specials, opening: int, length: int
) -> HiddenWords:
    pieces = np.full((len(windows), length), specials.pad, np.int32)
    document = np.full((len(windows), length), -1, np.int32)
    special = np.ones((len(windows), length), np.bool_)
    turn = np.full((len(windows), length), -1, np.int64)
    for row, window in enumerate(windows):
        size = len(window.pieces)
        pieces[row, : size + 2] = [opening, *window.pieces, specials.end]
        document[row, : size + 2] = 0
        special[row, 1 : size + 1] = False
        turn[row, 1 : size + 1] = window.turn
    language = None
    if windows[0].language is not None:
        spoken = np.array([window.language for window in windows], np.int32)
        language = np.broadcast_to(spoken[:, None], pieces.shape).copy()
    asked = np.where(turn == number, turn, -1)
    most = max(1, int((turn == number).sum(axis=1).max()))
    return HiddenWords(
        Rows(pieces, Coordinates(document=document, language=language), special),
        Chosen.listed(asked, most),
        turn >= number,
        sum(w.num_bytes for w in windows) if number == 0 else 0,
        sum(w.num_words for w in windows) if number == 0 else 0,
    )
