"""Occurrences of tokens in the rest of their document, outside the current sequence."""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bertwright.data.shards.dataset import Split

MAX_CACHED_DOCUMENTS = 128
"""Number of documents with cached token counts, for data sets with few, long documents."""


class TokenOccurrences:
    """A lazy count of tokens in the documents of a split."""

    def __init__(self, split: "Split") -> None:
        self._split = split
        self._cached_counts = lru_cache(MAX_CACHED_DOCUMENTS)(self._count_tokens)

    def occurs_elsewhere(self, positions: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return whether each token also occurs in its document outside the sequence.

        ``positions`` (B, L) are positions in the split, or -1 for no token. The result (B, L) is 1
        for yes, 0 for no, and -1 for no token.
        """
        result = np.where(positions >= 0, np.int32(0), np.int32(-1))
        tokens = self._split.gather(np.maximum(positions, 0).ravel(), 1)[0].reshape(positions.shape)
        for sequence, document in self._partial_documents(positions):
            start, stop = self._split.document_starts[document : document + 2].tolist()
            inside = np.flatnonzero((positions[sequence] >= start) & (positions[sequence] < stop))
            ids = tokens[sequence, inside]
            document_counts = self._cached_counts(document)
            unique = _first_occurrences(positions[sequence, inside])
            sequence_counts = np.bincount(ids[unique], minlength=len(document_counts))
            result[sequence, inside] = document_counts[ids] > sequence_counts[ids]
        return result

    def _partial_documents(self, positions: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return (sequence, document) for every document that a sequence contains only partly."""
        sequence, column = np.nonzero(positions >= 0)
        position = positions[sequence, column]
        bounds = np.asarray(self._split.document_starts)
        document = np.searchsorted(bounds, position, side="right") - 1
        edge = np.diff(sequence, append=-1) != 0
        edge |= np.diff(document, append=-1) != 0
        last = np.flatnonzero(edge)
        first = np.append(0, last[:-1] + 1)[: len(last)]
        size, index = last + 1 - first, document[last]
        complete = (size == np.diff(bounds)[index]) & (position[first] == bounds[index])
        complete &= position[last] == bounds[index + 1] - 1
        pairs = zip(sequence[last][~complete].tolist(), index[~complete].tolist(), strict=True)
        return list(dict.fromkeys(pairs))

    def _count_tokens(self, document: int) -> NDArray[np.int32]:
        """Return the count of each token id in a document, up to its highest id."""
        start, stop = self._split.document_starts[document : document + 2].tolist()
        return np.bincount(self._split.token_ids(start, stop)).astype(np.int32)


def _first_occurrences(positions: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """Return the indices at which a position occurs for the first time.

    Positions repeat only if the random second text of a pair comes from the same document.
    """
    if (positions[1:] > positions[:-1]).all():
        return slice(None)
    return np.unique(positions, return_index=True)[1]
