"""Rankings: the positions of texts in an index, best first, with their scores."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

RRF_CONSTANT = 60
"""Added to ranks in reciprocal rank fusion (Cormack et al. 2009)."""


class Ranking(NamedTuple):
    """Positions of texts (K,) int64, best first, and their scores (K,) float32."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float32]


def top_ranking(scores: ArrayLike, top: int, positions: NDArray[np.int64] | None = None) -> Ranking:
    """Return the ``top`` highest of scores (N,); on ties, earlier positions come first.

    ``positions`` (N,) are those of the scores, by default 0 ... N - 1.
    """
    values = np.asarray(scores, np.float32)
    if positions is None:
        positions = np.arange(len(values), dtype=np.int64)
    if top < len(values):
        candidates = np.flatnonzero(values >= np.partition(values, -top)[-top])
        values, positions = values[candidates], positions[candidates]
    order = np.lexsort((positions, -values))[:top]
    return Ranking(positions[order], values[order])


def top_matches(scores: NDArray[np.float32], top: int) -> Ranking:
    """Return the ``top`` highest scores (N,) above 0: of texts that share a term with a query."""
    positions = np.flatnonzero(scores > 0)
    return top_ranking(scores[positions], top, positions)


def merge_rankings(rankings: Sequence[Ranking], offsets: Sequence[int], top: int) -> Ranking:
    """Return the best of rankings of consecutive segments, whose first positions are given."""
    positions = [r.positions + offset for r, offset in zip(rankings, offsets, strict=True)]
    scores = np.concatenate([ranking.scores for ranking in rankings])
    return top_ranking(scores, top, np.concatenate(positions))


def fuse_rankings(rankings: Sequence[Ranking], top: int) -> Ranking:
    """Return texts by the sum of 1 / (60 + rank) over rankings: reciprocal rank fusion.

    Source: Cormack, Clarke and Büttcher 2009. A text that a ranking lacks gets nothing from it.
    """
    positions, inverse = np.unique(
        np.concatenate([ranking.positions for ranking in rankings]), return_inverse=True
    )
    ranks = np.concatenate([np.arange(1, 1 + len(ranking.positions)) for ranking in rankings])
    scores = np.bincount(inverse, 1 / (RRF_CONSTANT + ranks), len(positions))
    return top_ranking(scores, top, positions)
