"""Dropping documents that are exactly like an earlier one."""

from collections.abc import Iterable, Iterator

import numpy as np

from bertwright.text.documents import Document, ReadCounts, fingerprint


class FirstHolders:
    """Who came first with a 64-bit fingerprint, at 18 to 36 bytes a fingerprint.

    Open addressing over two arrays: ten million take 300 MB where a dictionary takes a gigabyte.
    """

    def __init__(self) -> None:
        self._fingerprints = np.zeros(1 << 10, dtype=np.uint64)  # 0 marks an empty slot
        self._holders = np.zeros(1 << 10, dtype=np.uint32)
        self._count = 0

    def first(self, fingerprint: int, holder: int) -> int:
        """The first holder of a fingerprint: the one given, if there was none before."""
        fingerprint = fingerprint or 1
        if 3 * self._count >= 2 * len(self._fingerprints):
            self._grow()
        place = self._place(fingerprint)
        if self._fingerprints[place] == 0:
            self._fingerprints[place] = fingerprint
            self._holders[place] = holder
            self._count += 1
        return int(self._holders[place])

    def _place(self, fingerprint: int) -> int:
        """The slot of a fingerprint, or the empty one where it belongs."""
        slots, mask = self._fingerprints, len(self._fingerprints) - 1
        place = fingerprint & mask
        while (held := int(slots[place])) and held != fingerprint:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        used = self._fingerprints != 0
        fingerprints, holders = self._fingerprints[used], self._holders[used]
        size = 2 * len(self._fingerprints)
        self._fingerprints = np.zeros(size, dtype=np.uint64)
        self._holders = np.zeros(size, dtype=np.uint32)
        mask = np.uint64(size - 1)
        place = (fingerprints & mask).astype(np.int64)
        while len(fingerprints):
            free = self._fingerprints[place] == 0
            self._fingerprints[place[free]] = fingerprints[free]  # of several the last one stays
            settled = self._fingerprints[place] == fingerprints
            self._holders[place[settled]] = holders[settled]
            fingerprints, holders = fingerprints[~settled], holders[~settled]
            place = (place[~settled] + 1) & int(mask)


def unseen(documents: Iterable[Document], met: ReadCounts) -> Iterator[Document]:
    """The documents that are not exactly an earlier one; counts the others.

    Two different documents of n are taken for the same with probability n squared / 2^65: one in
    370,000 for ten million documents.
    """
    holders = FirstHolders()
    for number, document in enumerate(documents):
        if holders.first(fingerprint(document), number) == number:
            yield document
        else:
            met.duplicates += 1
