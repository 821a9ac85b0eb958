"""Dropping documents that are much like an earlier one, by MinHash (Broder 1997).

A document is the set of its runs of five words. Under a random order of all runs, two sets have the
same lowest run as often as their intersection is of their union (Jaccard); so the lowest runs under
120 orders, the *sketch*, tell how much alike two documents are. Sketches are compared where they
agree on six numbers in a row (a *band*), which happens to 99.8 % of the pairs that share 80 %.
"""

import zlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from bertwright.randomness import bits, key
from bertwright.text.documents import Document, ReadCounts
from bertwright.text.duplicates import FirstHolders
from bertwright.text.processes import chunked, in_order
from bertwright.text.words import words

SIMILARITY = 0.8
"""Near duplicates share at least this part of their runs (estimated)."""

_RUN = 5
_MOST_WORDS = 1 << 17
_BANDS, _BAND = 20, 6
_BLOCK = 1 << 9  # runs at a time: what is made of them stays in the processor's cache

_RUN_KEY, _BAND_KEY = key(0, "runs"), key(0, "bands")

Sketch = NDArray[np.uint32]


def dissimilar(
    documents: Iterable[Document], met: ReadCounts, num_workers: int
) -> Iterator[Document]:
    """The documents that are not nearly an earlier one; counts the others.

    Memory grows by about a kilobyte a document.
    """
    similar = Similar()
    for chunk in in_order(Sketcher, (), chunked(documents), num_workers):
        for document, sketch in chunk:
            if similar.add(sketch):
                yield document
            else:
                met.near_duplicates += 1


class Sketcher:
    """Documents with their sketches, (120,) uint32 each."""

    def __init__(self) -> None:
        numbers = bits(key(0, "orders"), np.arange(2 * _BANDS * _BAND)).astype(np.uint32)
        self._factors, self._terms = numbers[::2, None] | np.uint32(1), numbers[1::2, None]

        self._hashes = _WordHashes()

    def __call__(self, documents: list[Document]) -> list[tuple[Document, Sketch]]:
        if len(self._hashes) > _MOST_WORDS:
            self._hashes.clear()
        return [(d, self._sketch(self._runs(d.whole_text))) for d in documents]

    def _runs(self, text: str) -> NDArray[np.uint32]:
        """A hash of every run of five words; a shorter text is one run."""
        found = words(text.lower())
        hashes = np.fromiter(map(self._hashes.__getitem__, found), np.uint64, len(found))
        hashes = np.concatenate([hashes, np.zeros(max(0, _RUN - len(hashes)), dtype=np.uint64)])
        number = len(hashes) - _RUN + 1
        runs = bits(_RUN_KEY, *(hashes[place : place + number] for place in range(_RUN)))
        return runs.astype(np.uint32)

    def _sketch(self, runs: NDArray[np.uint32]) -> Sketch:
        lowest = np.full(len(self._terms), 0xFFFFFFFF, dtype=np.uint32)
        for start in range(0, len(runs), _BLOCK):
            ordered = self._factors * runs[start : start + _BLOCK] + self._terms
            np.minimum(lowest, ordered.min(axis=1), out=lowest)
        return lowest


class Similar:
    """The sketches of documents, and which bands they have."""

    def __init__(self) -> None:
        self._sketches = np.zeros((1 << 8, _BANDS * _BAND), dtype=np.uint32)
        self._count = 0
        self._bands = FirstHolders()

    def add(self, sketch: Sketch) -> bool:
        """Remember a sketch; whether nothing similar was there before."""
        rows = sketch.reshape(_BANDS, _BAND).T
        bands = bits(_BAND_KEY, np.arange(_BANDS), *rows).tolist()
        number = self._count
        firsts = {self._bands.first(band, number) for band in bands} - {number}
        alike = self._sketches[list(firsts)] == sketch
        if firsts and alike.mean(axis=1).max() >= SIMILARITY:
            return False
        if number == len(self._sketches):
            self._sketches = np.concatenate([self._sketches, np.zeros_like(self._sketches)])
        self._sketches[number] = sketch
        self._count += 1
        return True


class _WordHashes(dict[str, int]):
    """32-bit hashes of words, remembered."""

    def __missing__(self, word: str) -> int:
        hashed = self[word] = zlib.crc32(word.encode())
        return hashed
