"""How well texts are ranked for a query: the mean over queries, each a list of relevances beside
the scores by which its texts are ranked.

Where scores tie, whoever is irrelevant stands first: a model that gives everything one score has
found nothing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class Ranked(NamedTuple):
    """Of the texts of one query, how relevant they are (0: not) and how they score, (N,) each."""

    relevance: Numbers
    scores: Numbers

    def in_order(self) -> Numbers:
        """The relevances, best score first."""
        return self.relevance[np.lexsort((self.relevance, -self.scores))]


RankingMetric = Callable[[Sequence[Ranked]], float]


def ndcg_at(depth: int) -> RankingMetric:
    """Discounted gain of the first ``depth`` texts beside that of the best order (Järvelin and
    Kekäläinen 2002, with linear gains)."""
    discount = 1 / np.log2(np.arange(depth) + 2)

    def gain(relevance: Numbers) -> float:
        first = relevance[:depth]
        return float(first @ discount[: len(first)])

    def of(query: Ranked) -> float:
        return gain(query.in_order()) / gain(np.sort(query.relevance)[::-1])

    return _mean(of)


def reciprocal_rank_at(depth: int) -> RankingMetric:
    """1 over the place of the first relevant text, 0 behind ``depth``."""

    def of(query: Ranked) -> float:
        found = np.flatnonzero(query.in_order()[:depth] > 0)
        return 1 / (1 + int(found[0])) if len(found) else 0.0

    return _mean(of)


def recall_at(depth: int) -> RankingMetric:
    """The share of the relevant texts that are among the first ``depth``."""

    def of(query: Ranked) -> float:
        return float((query.in_order()[:depth] > 0).sum() / (query.relevance > 0).sum())

    return _mean(of)


def _mean(of: Callable[[Ranked], float]) -> RankingMetric:
    """Over the queries that have something relevant; 0 where none has."""

    def score(queries: Sequence[Ranked]) -> float:
        found = [of(query) for query in queries if (query.relevance > 0).any()]
        return float(np.mean(found)) if found else 0.0

    return score


RANKINGS: dict[str, RankingMetric] = {
    "ndcg@10": ndcg_at(10),
    "mrr@10": reciprocal_rank_at(10),
    "recall@1": recall_at(1),
    "recall@10": recall_at(10),
}
