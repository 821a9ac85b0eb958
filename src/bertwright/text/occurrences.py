"""Where else in its document a piece stands, which a row that holds a part of it cannot tell."""

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

DOCUMENTS_KEPT = 128
"""So many documents are counted once for all rows that are read meanwhile: it repays where they are
few and long."""


class Documents(Protocol):
    """Pieces in documents, which start at ``document_starts``; the last entry is the end."""

    document_starts: NDArray[np.int64]

    def pieces(self, start: int, stop: int) -> NDArray[np.int32]: ...

    def gather(self, starts: NDArray[np.int64], length: int) -> tuple[NDArray[np.int32], Any]: ...


class Occurrences:
    """How often each piece stands in the documents of a split, counted when a row asks for it."""

    def __init__(self, split: Documents) -> None:
        self._split = split
        self._counts_of = lru_cache(DOCUMENTS_KEPT)(self._count)

    def elsewhere(self, source: NDArray[np.int64]) -> NDArray[np.int32]:
        """Whether the piece of each place also stands in another part of its document.

        ``source`` (B, L) are the positions in the split that the places come from, -1 where nothing
        does. Other parts are all positions of the document that stand nowhere in the row. Returns
        (B, L): 1 where the piece stands at one of them, 0 where not, -1 where there is no piece.
        """
        known = np.where(source >= 0, np.int32(0), np.int32(-1))
        pieces = self._split.gather(np.maximum(source, 0).ravel(), 1)[0].reshape(source.shape)
        for row, document in self._parted(source):
            start, stop = self._split.document_starts[document : document + 2].tolist()
            mine = np.flatnonzero((source[row] >= start) & (source[row] < stop))
            of_piece, position = pieces[row, mine], source[row, mine]
            everywhere = self._counts_of(document)
            once = _first_of_each(position)
            in_row = np.bincount(of_piece[once], minlength=len(everywhere))
            known[row, mine] = everywhere[of_piece] > in_row[of_piece]
        return known

    def _parted(self, source: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Every row with every document that it holds some of, unless it holds all from the first
        to the last position."""
        row, place = np.nonzero(source >= 0)
        position = source[row, place]
        bounds = np.asarray(self._split.document_starts)
        document = np.searchsorted(bounds, position, side="right") - 1
        edge = np.diff(row, append=-1) != 0
        edge |= np.diff(document, append=-1) != 0
        last = np.flatnonzero(edge)
        first = np.append(0, last[:-1] + 1)[: len(last)]
        size, number = last + 1 - first, document[last]
        whole = (size == np.diff(bounds)[number]) & (position[first] == bounds[number])
        whole &= position[last] == bounds[number + 1] - 1
        found = zip(row[last][~whole].tolist(), number[~whole].tolist(), strict=True)
        return list(dict.fromkeys(found))

    def _count(self, document: int) -> NDArray[np.int32]:
        """How often each piece stands in a document, up to the last piece that does."""
        start, stop = self._split.document_starts[document : document + 2].tolist()
        return np.bincount(self._split.pieces(start, stop)).astype(np.int32)


def _first_of_each(position: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """Which places hold a position for the first time: all, but where a random second text is of
    the same document, and repeats some of the first."""
    if (position[1:] > position[:-1]).all():
        return slice(None)
    return np.unique(position, return_index=True)[1]
