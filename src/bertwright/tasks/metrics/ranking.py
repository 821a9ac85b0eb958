"""Ranking metrics: means over queries, from the relevance and scores of each query's texts.

References are the relevance (0: irrelevant) of the texts of each query, (N,) per query; predictions
are their scores. On ties, irrelevant texts rank first: a model with the same score for everything
has ranked nothing.
"""

from collections.abc import Callable, Sequence

import numpy as np

from bertwright.tasks.metrics.metrics import FloatArray64, Metric, MetricSums, mean_sums


def ndcg_at(depth: int) -> Metric:
    """Return NDCG at ``depth``, with linear gains (Järvelin and Kekäläinen 2002)."""
    discount = 1 / np.log2(np.arange(depth) + 2)

    def gain(relevance: FloatArray64) -> float:
        first = relevance[:depth]
        return float(first @ discount[: len(first)])

    return _mean_over_queries(lambda relevance: gain(relevance) / gain(np.sort(relevance)[::-1]))


def reciprocal_rank_at(depth: int) -> Metric:
    """Return the reciprocal rank of the first relevant text, 0 beyond ``depth``."""

    def score(relevance: FloatArray64) -> float:
        hits = np.flatnonzero(relevance[:depth] > 0)
        return 1 / (1 + int(hits[0])) if len(hits) else 0.0

    return _mean_over_queries(score)


def recall_at(depth: int) -> Metric:
    """Return the fraction of the relevant texts that are among the first ``depth``."""
    return _mean_over_queries(
        lambda relevance: float((relevance[:depth] > 0).sum() / (relevance > 0).sum())
    )


def _mean_over_queries(score: Callable[[FloatArray64], float]) -> Metric:
    """Average a score of the relevance (N,), best text first, over queries with relevant texts."""

    def sums(references: Sequence[FloatArray64], predictions: Sequence[FloatArray64]) -> MetricSums:
        ranked = [
            relevance[np.lexsort((relevance, -scores))]
            for relevance, scores in zip(references, predictions, strict=True)
            if (relevance > 0).any()
        ]
        return mean_sums([score(relevance) for relevance in ranked] or [0.0])

    return Metric(sums, is_ranking=True)


RANKING_METRICS: dict[str, Metric] = {
    "ndcg@10": ndcg_at(10),
    "mrr@10": reciprocal_rank_at(10),
    "recall@1": recall_at(1),
    "recall@10": recall_at(10),
}
