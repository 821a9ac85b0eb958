"""Ranking metrics: known values, and 0 for constant scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from bertwright.tasks.metrics.ranking import RANKING_METRICS, ndcg_at, reciprocal_rank_at

DISTINCT = st.lists(st.integers(0, 1000), min_size=2, max_size=20, unique=True)


@given(DISTINCT, st.data())
def test_ndcg_matches_scikit_learn(scores: list[int], data: st.DataObject) -> None:
    relevance = data.draw(
        st.lists(st.integers(0, 3), min_size=len(scores), max_size=len(scores)).filter(any)
    )
    expected = ndcg_score([relevance], [scores], k=10)
    assert ndcg_at(10)([np.array(relevance, float)], [np.array(scores, float)]) == pytest.approx(
        expected, abs=1e-9
    )


def test_the_first_relevant_text_decides_the_reciprocal_rank() -> None:
    query = [np.array([0.0, 1.0, 0.0, 2.0])], [np.array([0.9, 0.5, 0.7, 0.1])]
    assert reciprocal_rank_at(10)(*query) == pytest.approx(1 / 3)
    assert reciprocal_rank_at(2)(*query) == 0.0


@pytest.mark.parametrize("name", RANKING_METRICS)
def test_constant_scores_rank_nothing(name: str) -> None:
    assert RANKING_METRICS[name]([np.array([1.0] + [0.0] * 99)], [np.zeros(100)]) == 0.0


@pytest.mark.parametrize("name", RANKING_METRICS)
def test_the_best_order_scores_one(name: str) -> None:
    best, nothing, scores = np.array([2.0, 0.0, 0.0]), np.zeros(3), np.array([3.0, 2.0, 1.0])
    assert RANKING_METRICS[name]([best, nothing], [scores, scores]) == 1.0
    assert RANKING_METRICS[name]([nothing], [scores]) == 0.0
