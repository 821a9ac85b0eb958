"""The longest match of a text with a split, from every position of the text on.

A suffix array lists the positions of a sequence in the lexicographic order of the tokens from there
on, so that binary search finds the longest match of any text (Manber and Myers 1993). The arrays
are built for one block of the split after the other, so that memory is bounded. Blocks overlap by
the length of the longest text, so that no match is cut.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.data.shards.dataset import Split

IntArray = NDArray[np.int64]

BLOCK_LENGTH = 1 << 21
"""Tokens of a block; a suffix array takes some 60 bytes per token while it is built."""

_COMPARED_AT_ONCE = 16
_DOCUMENT_END, _SPLIT_END, _TEXT_END = -1, -2, -3
"""Values that are no token ids, and differ from each other."""


def longest_matches(
    split: Split, texts: Sequence[Sequence[int]], block_length: int = BLOCK_LENGTH
) -> list[IntArray]:
    """Return for each text the lengths of the longest matches from every position on, (T,) each.

    The tokens of a match stand in one document of the split, in the same order and without a gap.
    """
    lengths = [np.zeros(len(text), np.int64) for text in texts]
    depth = max(map(len, texts), default=0)
    for tokens in _overlapping_blocks(split, block_length, depth):
        suffixes = SuffixArray(tokens, depth)
        for text, longest in zip(texts, lengths, strict=True):
            np.maximum(longest, suffixes.longest_matches(text), out=longest)
    return lengths


class SuffixArray:
    """A suffix array of a sequence of tokens, sorted by the next ``depth`` tokens."""

    def __init__(self, tokens: NDArray[np.integer], depth: int) -> None:
        self.depth = depth
        self.positions = sort_suffixes(tokens, depth)
        self._tokens = np.append(tokens, np.full(depth + 1, _SPLIT_END)).astype(np.int64)

    def longest_matches(self, text: Sequence[int]) -> IntArray:
        """Return the length of the longest match from every position of a text on, (T,).

        A text has at most ``depth`` tokens.
        """
        padded = np.append(np.asarray(text, np.int64), np.full(self.depth + 1, _TEXT_END))
        starts = np.arange(len(text))
        low = np.zeros(len(text), np.int64)
        high = np.full(len(text), len(self.positions))
        while (is_open := low < high).any():
            middle = (low + high) // 2
            is_before, _ = self._compare(padded, starts, middle)
            low = np.where(is_open & is_before, middle + 1, low)
            high = np.where(is_open & ~is_before, middle, high)
        # The longest match is with a neighbour of the text in the order.
        neighbours = (np.maximum(low - 1, 0), np.minimum(low, len(self.positions) - 1))
        return np.maximum(*(self._compare(padded, starts, index)[1] for index in neighbours))

    def _compare(
        self, text: IntArray, starts: IntArray, index: IntArray
    ) -> tuple[NDArray[np.bool_], IntArray]:
        """Compare suffixes of a text with entries of the array, (T,) each.

        Returns whether the entry is before the text in the order, and the length of their common
        prefix.
        """
        is_before, lengths = np.zeros(len(starts), np.bool_), np.zeros(len(starts), np.int64)
        positions = self.positions[np.minimum(index, len(self.positions) - 1)]
        pending = np.arange(len(starts))
        for first in range(0, self.depth + 1, _COMPARED_AT_ONCE):
            offsets = np.arange(first, min(first + _COMPARED_AT_ONCE, self.depth + 1))
            of_text = text[starts[pending, None] + offsets]
            of_array = self._tokens[positions[pending, None] + offsets]
            differs = of_text != of_array
            column, has_ended = differs.argmax(1), differs.any(1)
            rows = np.arange(len(pending))
            is_before[pending] = of_array[rows, column] < of_text[rows, column]
            lengths[pending] = first + column
            pending = pending[~has_ended]
            if not len(pending):
                break
        return is_before, lengths


def sort_suffixes(tokens: NDArray[np.integer], depth: int) -> IntArray:
    """Return all positions (N,) in the lexicographic order of the next ``depth`` tokens.

    Ranks by the next 2, 4, 8, ... tokens follow from those by half as many (prefix doubling).
    """
    _, ranks = np.unique(tokens, return_inverse=True)
    ranks = ranks.astype(np.int64)
    order, length = np.argsort(ranks, kind="stable"), 1
    while length < depth:
        # 0 for the end of the sequence, which is before every token.
        following = np.zeros(len(ranks), np.int64)
        following[: len(ranks) - length] = ranks[length:] + 1
        keys = ranks * (len(ranks) + 1) + following
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        ranks[order] = np.append(0, np.cumsum(ordered[1:] != ordered[:-1]))
        length *= 2
        if ranks[order[-1]] == len(ranks) - 1:
            break
    return order


def _overlapping_blocks(split: Split, length: int, overlap: int) -> Iterator[NDArray[np.int64]]:
    """Yield the tokens of a split in blocks, with a separator before every document."""
    for start in range(0, split.num_tokens, length):
        stop = min(start + length + overlap, split.num_tokens)
        first, last = np.searchsorted(split.document_starts, (start + 1, stop))
        ends = split.document_starts[first:last] - start
        yield np.insert(split.token_ids(start, stop).astype(np.int64), ends, _DOCUMENT_END)
