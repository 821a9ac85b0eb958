"""Dropping documents that were seen before: exactly, or nearly."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertwright.text.documents import ReadCounts, fingerprint
from bertwright.text.processes import chunked, in_order
from bertwright.text.words import word_spans

if TYPE_CHECKING:
    from datasketch import MinHash
else:
    MinHash = Any


class Seen:
    """A set of 64-bit fingerprints at about 16 bytes each.

    Open addressing over one array, so ten million documents take 160 MB and not a gigabyte. Two
    different documents are taken for the same with probability n squared / 2^65: one in 370,000
    for ten million documents.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(1 << 10, dtype=np.uint64)
        self._count = 0

    def add(self, fingerprint: int) -> bool:
        """Remember a fingerprint; whether it is new."""
        fingerprint = fingerprint or 1  # 0 marks an empty slot
        if 3 * self._count >= 2 * len(self._slots):
            self._grow()
        slots, mask = self._slots, len(self._slots) - 1
        place = fingerprint & mask
        while (held := int(slots[place])) != 0:
            if held == fingerprint:
                return False
            place = (place + 1) & mask
        slots[place] = fingerprint
        self._count += 1
        return True

    def _grow(self) -> None:
        held = self._slots[self._slots != 0]
        slots = np.zeros(2 * len(self._slots), dtype=np.uint64)
        _place_all(slots, held)
        self._slots = slots


def _place_all(slots: NDArray[np.uint64], held: NDArray[np.uint64]) -> None:
    """Put distinct fingerprints into an empty table, all at once."""
    mask = np.uint64(len(slots) - 1)
    place = (held & mask).astype(np.int64)
    while len(held):
        free = slots[place] == 0
        slots[place[free]] = held[free]  # of several that want one slot the last one stays
        waiting = slots[place] != held
        held, place = held[waiting], (place[waiting] + 1) & int(mask)


def unseen(documents: Iterable[str], met: ReadCounts) -> Iterator[str]:
    """The documents that are not exactly an earlier one; counts the others."""
    seen = Seen()
    for document in documents:
        if seen.add(fingerprint(document)):
            yield document
        else:
            met.duplicates += 1


SIMILARITY = 0.8
"""Near duplicates share at least this part of their runs of words (Jaccard, estimated)."""
_RUN = 5
_PERMUTATIONS = 128


class Sketcher:
    """Each document with its MinHash sketch (Broder 1997), that of its runs of five words."""

    def __call__(self, documents: list[str]) -> list[tuple[str, MinHash]]:
        import datasketch

        sketches = datasketch.MinHash.generator(map(_runs, documents), num_perm=_PERMUTATIONS)
        return list(zip(documents, sketches, strict=True))


class Similar:
    """An index of sketches; unlike all else in preparation it grows by kilobytes a document."""

    def __init__(self) -> None:
        import datasketch

        self._index: Any = datasketch.MinHashLSH(threshold=SIMILARITY, num_perm=_PERMUTATIONS)
        self._sketches: list[MinHash] = []

    def add(self, sketch: MinHash) -> bool:
        """Remember a sketch; whether nothing similar was there before."""
        near = (self._sketches[number] for number in self._index.query(sketch))
        if any(sketch.jaccard(other) >= SIMILARITY for other in near):
            return False
        self._index.insert(len(self._sketches), sketch)
        self._sketches.append(sketch)
        return True


def dissimilar(documents: Iterable[str], met: ReadCounts, num_workers: int) -> Iterator[str]:
    """The documents that are not nearly an earlier one; counts the others."""
    similar = Similar()
    for chunk in in_order(Sketcher, (), chunked(documents), num_workers):
        for document, sketch in chunk:
            if similar.add(sketch):
                yield document
            else:
                met.near_duplicates += 1


def _runs(document: str) -> list[bytes]:
    words = [document[start:end].lower() for start, end in word_spans(document)]
    last = max(1, len(words) - _RUN + 1)
    return [" ".join(words[start : start + _RUN]).encode() for start in range(last)]
