"""Chunks: filling rows with whole sentences, greedily.

Where the next chunk begins depends on where this one does, so the chunks form a chain. The jump
from every possible beginning is computed at once; only the chain itself is followed in Python.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.text.shards import Split

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What is never cut: sentences, and the parts of those longer than a row has room for.

    - ``starts``, ``stops``: (U,) int64, the pieces of each unit; together they are the whole stream
    - ``document``: (U,) int64
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    document: NDArray[np.int64]

    def after_document(self) -> NDArray[np.int64]:
        """(U,): the first unit of the next document."""
        return np.searchsorted(self.document, self.document, side="right")


def whole_sentences(split: "Split", room: int) -> Units:
    """The sentences of a split; one of more than ``room`` pieces is cut every ``room`` pieces."""
    if split.num_pieces == 0:
        raise UserError(f"the {split.name} split holds no text: prepare more")
    sentence_starts = np.asarray(split.sentence_starts, np.int64)
    sizes = np.diff(sentence_starts)
    parts = -(-sizes // room)
    first_part = np.cumsum(parts) - parts
    part = np.arange(parts.sum()) - np.repeat(first_part, parts)
    starts = np.repeat(sentence_starts[:-1], parts) + room * part
    stops = np.append(starts[1:], sentence_starts[-1:])
    document = np.searchsorted(split.document_starts, starts, side="right") - 1
    return Units(starts, stops, document)


def chain(following: NDArray[np.int64]) -> NDArray[np.int64]:
    """The units that begin a chunk, if a chunk at unit u ends before unit ``following[u] > u``."""
    found: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    unit = 0
    for first in range(0, len(following), _BLOCK):
        block = following[first : first + _BLOCK].tolist()
        visited: list[int] = []
        while unit < first + len(block):
            visited.append(unit)
            unit = block[unit - first]
        found.append(np.array(visited, np.int64))
    return np.concatenate(found)
