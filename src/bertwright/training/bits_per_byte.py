"""Bits per byte of hidden words: a masked loss that can be compared between tokenizers.

Some 15 % of the words of held-out documents are hidden, every piece of them behind a mask. The
nats that the model pays for all their pieces, by ln 2 and by the UTF-8 bytes of the words, are bits
per byte. Which words are hidden is a hash of the document's number and of the bytes of the words
before it in the document, so the same words are hidden for every tokenizer (counting words instead
would lose step after a piece that covers two words). Documents are cut into windows between words.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import Coordinates
from bertwright.examples.questions import Question
from bertwright.randomness import Permutation, key, uniform
from bertwright.text.marks import WORD_START
from bertwright.text.shards import Split
from bertwright.text.tokenizers import Specials

HIDDEN_SHARE = 0.15

KEY = key(0, "bits-per-byte")
"""The same in every run, so that every model is asked for the same words."""


@dataclass(frozen=True)
class HiddenWords:
    """Rows of text with whole words hidden.

    ``num_bytes`` are the UTF-8 bytes of the hidden words, ``num_words`` how many they are.
    """

    batch: Batch
    num_bytes: int
    num_words: int


@dataclass(frozen=True)
class _Window:
    """A stretch of a document in a language, and where in it the hidden pieces lie."""

    language: int | None
    pieces: NDArray[np.int32]
    hidden: NDArray[np.int64]
    num_bytes: int
    num_words: int


def hidden_words(
    split: Split, specials: Specials, name: str, length: int, most_bytes: int, num_rows: int = 32
) -> Iterator[HiddenWords]:
    """Documents in a fixed random order until their words make ``most_bytes``, in batches.

    ``name`` is the question that asks, ``length`` the places of a row.
    """
    window: list[_Window] = []
    for each in _windows(split, length - 2, most_bytes):
        window.append(each)
        if len(window) == num_rows:
            yield _batch(window, specials, name, length)
            window = []
    if window:
        yield _batch(window, specials, name, length)


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


def _batch(windows: list[_Window], specials: Specials, name: str, length: int) -> HiddenWords:
    pieces = np.full((len(windows), length), specials.pad, np.int32)
    document = np.full((len(windows), length), -1, np.int32)
    where: list[NDArray[np.int64]] = []
    target: list[NDArray[np.int32]] = []
    for row, window in enumerate(windows):
        size = len(window.pieces)
        shown = window.pieces.copy()
        shown[window.hidden] = specials.mask
        pieces[row, : size + 2] = [specials.start, *shown, specials.end]
        document[row, : size + 2] = 0
        where.append(row * length + 1 + window.hidden)
        target.append(window.pieces[window.hidden])
    asked = np.concatenate(where)
    question = Question(
        asked, np.concatenate(target).astype(np.int64), np.ones(len(asked), np.float32)
    )
    language = None
    if windows[0].language is not None:
        spoken = np.array([window.language for window in windows], np.int32)
        language = np.broadcast_to(spoken[:, None], pieces.shape).copy()
    coordinates = Coordinates(document=document, language=language)
    batch = Batch(pieces, coordinates, {name: question}, int((document >= 0).sum()))
    return HiddenWords(batch, sum(w.num_bytes for w in windows), sum(w.num_words for w in windows))
