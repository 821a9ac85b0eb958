"""Rankings: ties, merged segments, and reciprocal rank fusion."""

import numpy as np
import pytest

from bertwright.retrieval.rankings import Ranking, fuse_rankings, merge_rankings, top_ranking


def test_ties_are_broken_by_position() -> None:
    ranking = top_ranking(np.array([1.0, 3.0, 2.0, 3.0, 2.0, 2.0]), 4)
    assert ranking.positions.tolist() == [1, 3, 2, 4]
    assert ranking.scores.tolist() == [3, 3, 2, 2]


@pytest.mark.parametrize("top", [1, 7, 40, 100])
def test_merged_segments_rank_like_one(top: int) -> None:
    scores = np.random.default_rng(0).integers(0, 9, 40).astype(np.float32)
    whole = top_ranking(scores, top)
    parts = [top_ranking(part, top) for part in (scores[:13], scores[13:14], scores[14:])]
    merged = merge_rankings(parts, [0, 13, 14], top)
    assert merged.positions.tolist() == whole.positions.tolist()
    assert merged.scores.tolist() == whole.scores.tolist()


def test_fusion_adds_reciprocal_ranks() -> None:
    rankings = [
        Ranking(np.array(positions), np.linspace(5, 1, len(positions), dtype=np.float32))
        for positions in ([4, 7, 9], [9, 4])
    ]
    fused = fuse_rankings(rankings, 3)
    assert fused.positions.tolist() == [4, 9, 7]
    expected = [1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62]
    np.testing.assert_allclose(fused.scores, expected, rtol=1e-6)
    assert len(fuse_rankings(rankings, 1).positions) == 1
