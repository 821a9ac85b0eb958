"""Which texts stand in a data set already, so that a model may have read what it is asked.

Two texts overlap where they have a run of 13 pieces in common (Brown et al. 2020, appendix C, which
counts words); of a shorter text all of it is one run, and below 8 pieces it says nothing.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.randomness import bits, key
from bertwright.text.shards import Data, Split

_RUN, _SHORTEST = 13, 8
_BLOCK = 1 << 18
_KEY = key(0, "overlap")


def standing_in(data: Data, texts: Iterable[str]) -> list[bool]:
    """Whether some run of each text stands in the training split."""
    split = data.split("train")
    rows = [np.array(split.pieces_of(text), np.int64) for text in texts]
    found = [False] * len(rows)
    for size in range(_SHORTEST, _RUN + 1):
        mine = [n for n, row in enumerate(rows) if min(len(row), _RUN) == size]
        met = _met(split, [_runs(rows[n], size) for n in mine], size)
        for number, seen in zip(mine, met, strict=True):
            found[number] = seen
    return found


def _met(split: Split, asked: Sequence[NDArray[np.uint64]], size: int) -> list[bool]:
    """Whether any of the runs of each text stands in the split."""
    if not asked:
        return []
    known = np.unique(np.concatenate(asked))
    there = np.zeros(len(known), bool)
    for start in range(0, split.num_pieces, _BLOCK):
        pieces = split.pieces(start, min(start + _BLOCK + size - 1, split.num_pieces))
        there |= np.isin(known, _runs(pieces, size))
    return [bool(there[np.searchsorted(known, runs)].any()) for runs in asked]


def _runs(pieces: NDArray[np.integer], size: int) -> NDArray[np.uint64]:
    """A number for each run of ``size`` pieces, the same for the same run."""
    number = max(len(pieces) - size + 1, 0)
    return bits(_KEY, *(pieces[place : place + number] for place in range(size)))
