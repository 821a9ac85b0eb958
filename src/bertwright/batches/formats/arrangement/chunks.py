"""Chunks: whole sentences that fill a sequence greedily.

Each chunk begins where the previous one ends, so chunks form a chain. NumPy computes the end of a
chunk from every possible start at once; only the chain itself is followed in Python.
"""

from dataclasses import dataclass

import numpy as np

from bertwright.batches.arrays import IntArray
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Split

_BLOCK_SIZE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class SentenceUnits:
    """Units that are never split: sentences, or parts of sentences longer than a sequence.

    - ``starts``, ``stops``: (U,) int64, the token span of each unit; the units cover the stream
    - ``document_ids``: (U,) int64
    """

    starts: IntArray
    stops: IntArray
    document_ids: IntArray

    def next_document_start(self) -> IntArray:
        """Return for each unit the first unit of the next document, (U,)."""
        return np.searchsorted(self.document_ids, self.document_ids, side="right")


def split_long_sentences(split: Split, max_tokens: int) -> SentenceUnits:
    """Return the sentences of a split; longer ones are cut into parts of ``max_tokens``."""
    if split.num_tokens == 0:
        raise UserError(f"the {split.name} split holds no text: prepare more")
    sentence_starts = np.asarray(split.sentence_starts, np.int64)
    sizes = np.diff(sentence_starts)
    parts = -(-sizes // max_tokens)
    first_part = np.cumsum(parts) - parts
    part = np.arange(parts.sum()) - np.repeat(first_part, parts)
    starts = np.repeat(sentence_starts[:-1], parts) + max_tokens * part
    stops = np.append(starts[1:], sentence_starts[-1:])
    document_ids = np.searchsorted(split.document_starts, starts, side="right") - 1
    return SentenceUnits(starts, stops, document_ids)


def chunk_starts(next_unit: IntArray) -> IntArray:
    """Return the first unit of each chunk; a chunk from unit u ends before ``next_unit[u]``."""
    blocks: list[IntArray] = [np.empty(0, np.int64)]
    unit = 0
    for first in range(0, len(next_unit), _BLOCK_SIZE):
        block = next_unit[first : first + _BLOCK_SIZE].tolist()
        visited: list[int] = []
        while unit < first + len(block):
            visited.append(unit)
            unit = block[unit - first]
        blocks.append(np.array(visited, np.int64))
    return np.concatenate(blocks)
