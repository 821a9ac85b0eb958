"""Ranking metrics: the mean over queries, each with the relevance and the scores of its texts.

Where scores tie, irrelevant texts come first: a model with one score for everything ranks nothing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray64 = NDArray[np.float64]


class RankedQuery(NamedTuple):
    """Relevance (0: irrelevant) and scores of the texts of one query, (N,) each."""

    relevance: FloatArray64
    scores: FloatArray64

    def sorted_relevance(self) -> FloatArray64:
        """Return the relevance of the texts, best score first."""
        return self.relevance[np.lexsort((self.relevance, -self.scores))]


RankingMetric = Callable[[Sequence[RankedQuery]], float]


def ndcg_at(depth: int) -> RankingMetric:
    """Return NDCG at ``depth``, with linear gains (Järvelin and Kekäläinen 2002)."""
    discount = 1 / np.log2(np.arange(depth) + 2)

    def gain(relevance: FloatArray64) -> float:
        first = relevance[:depth]
        return float(first @ discount[: len(first)])

    def score(query: RankedQuery) -> float:
        return gain(query.sorted_relevance()) / gain(np.sort(query.relevance)[::-1])

    return _mean_over_queries(score)


def reciprocal_rank_at(depth: int) -> RankingMetric:
    """Return the reciprocal rank of the first relevant text, 0 beyond ``depth``."""

    def score(query: RankedQuery) -> float:
        hits = np.flatnonzero(query.sorted_relevance()[:depth] > 0)
        return 1 / (1 + int(hits[0])) if len(hits) else 0.0

    return _mean_over_queries(score)


def recall_at(depth: int) -> RankingMetric:
    """Return the fraction of the relevant texts that are among the first ``depth``."""

    def score(query: RankedQuery) -> float:
        return float((query.sorted_relevance()[:depth] > 0).sum() / (query.relevance > 0).sum())

    return _mean_over_queries(score)


def _mean_over_queries(metric: Callable[[RankedQuery], float]) -> RankingMetric:
    """Average over the queries that have relevant texts; 0 if none has."""

    def score(queries: Sequence[RankedQuery]) -> float:
        values = [metric(query) for query in queries if (query.relevance > 0).any()]
        return float(np.mean(values)) if values else 0.0

    return score


RANKING_METRICS: dict[str, RankingMetric] = {
    "ndcg@10": ndcg_at(10),
    "mrr@10": reciprocal_rank_at(10),
    "recall@1": recall_at(1),
    "recall@10": recall_at(10),
}
