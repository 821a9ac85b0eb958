"""Ranking metrics: known values, and 0 for constant scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from bertwright.tasks.catalogue import find_task
from bertwright.tasks.evaluation.bootstrap import bootstrap_intervals, paired_difference
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.metrics.ranking import RANKING_METRICS, ndcg_at, reciprocal_rank_at
from bertwright.tasks.outputs import Prediction

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


def test_each_model_ranks_the_examples_that_it_predicted() -> None:
    # Vectors of two models, which differ in width and meaning.
    task, rng = find_task("retrieval"), np.random.default_rng(0)
    examples = [Example(f"query {n}", f"text {n}") for n in range(7)]
    predictions = [
        Prediction(0.0, vectors=rng.normal(size=(2, 3 if n < 4 else 5)).astype(np.float32))
        for n in range(7)
    ]
    parts = [slice(0, 4), slice(4, 7)]
    scores = task.score(examples, predictions, parts)
    first, second = (task.score(examples[part], predictions[part]) for part in parts)
    assert scores == pytest.approx({n: (4 * first[n] + 3 * second[n]) / 7 for n in scores})
    intervals = bootstrap_intervals(task, examples, predictions, scores, parts)
    assert all(low <= scores[name] <= high for name, (low, high) in intervals.items())
    difference = paired_difference(task, examples, predictions, predictions, parts)
    assert difference.low == difference.high == 0.0
