"""Vector segments: stored vectors rank texts as the scores of their definition do."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import random as random_sparse
from scipy.sparse import vstack

from bertwright.retrieval.settings import IndexSettings, VectorType
from bertwright.retrieval.vectors import VECTOR_SEGMENTS, VectorSegment, dense, late_interaction
from bertwright.retrieval.vectors.segment import join_vectors, split_vectors

NUM_TEXTS, WIDTH, TOP = 300, 24, 10
VECTOR_TYPES = ("float32", "float16", "int8")


def open_segment(
    folder: Path, kind: str, vectors: object, num_texts: int, **settings: object
) -> VectorSegment:
    """Write vectors in uneven batches, and open them."""
    parsed = IndexSettings(kind=kind, **settings)
    parts = split_vectors(vectors)
    batches = [join_vectors(part) for part in (parts[:7], parts[7:8], parts[8:])]
    segment = VECTOR_SEGMENTS[kind]
    segment.write(folder, iter(batches), num_texts, parsed)
    return segment.open(folder, num_texts, parsed)


def require_scores(
    segment: VectorSegment, queries: object, expected: np.ndarray, tolerance: float
) -> None:
    """Require rankings by the expected scores (Q, N), up to rounding."""
    for row, ranking in zip(expected, segment.rank(queries, TOP), strict=True):
        np.testing.assert_allclose(ranking.scores, row[ranking.positions], atol=tolerance)
        best = np.sort(row)[::-1][: len(ranking.positions)]
        np.testing.assert_allclose(ranking.scores, best, atol=2 * tolerance)


@pytest.mark.parametrize("vector_type", VECTOR_TYPES)
@pytest.mark.parametrize("dimensions", [None, 8])
def test_dense_scores_are_cosines(
    tmp_path: Path, vector_type: VectorType, dimensions: int | None
) -> None:
    rng = np.random.default_rng(1)
    vectors = (5 * rng.normal(size=(NUM_TEXTS, WIDTH))).astype(np.float32)
    vectors[17] = 0
    queries = rng.normal(size=(5, WIDTH)).astype(np.float32)
    first, second = vectors[:, :dimensions], queries[:, :dimensions]
    norms = np.linalg.norm(first, axis=1)[None] * np.linalg.norm(second, axis=1)[:, None]
    cosines = second @ first.T / np.maximum(norms, 1e-9)
    segment = open_segment(
        tmp_path, "dense", vectors, NUM_TEXTS, vector_type=vector_type, dimensions=dimensions
    )
    tolerance = {"float32": 1e-5, "float16": 2e-3, "int8": 1e-2}[vector_type]
    require_scores(segment, queries, cosines, tolerance)


@pytest.mark.parametrize("vector_type", VECTOR_TYPES)
def test_a_graph_finds_nearly_all_neighbours_and_is_reproducible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vector_type: VectorType
) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(NUM_TEXTS, WIDTH)).astype(np.float32)
    queries = rng.normal(size=(20, WIDTH)).astype(np.float32)
    exact = open_segment(tmp_path, "dense", vectors, NUM_TEXTS, vector_type=vector_type)
    monkeypatch.setattr(dense, "MIN_GRAPH_TEXTS", NUM_TEXTS)
    graphs = []
    for name in ("first", "second"):
        (folder := tmp_path / name).mkdir()
        graphs.append(open_segment(folder, "dense", vectors, NUM_TEXTS, vector_type=vector_type))
        assert {file.name for file in folder.iterdir()} == {dense.GRAPH_FILE, dense.COPIES_FILE}
    files = [(tmp_path / name / dense.GRAPH_FILE).read_bytes() for name in ("first", "second")]
    assert files[0] == files[1]
    num_equal = [
        len(set(a.positions.tolist()) & set(b.positions.tolist()))
        for a, b in zip(exact.rank(queries, TOP), graphs[0].rank(queries, TOP), strict=True)
    ]
    assert sum(num_equal) >= 0.95 * TOP * len(queries)


def test_a_graph_with_equal_vectors_finds_them_and_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(NUM_TEXTS, WIDTH)).astype(np.float32)
    vectors[1::2] = vectors[5]
    vectors[40:44] = vectors[0]
    queries = np.concatenate((vectors[:12:2], vectors[5:6]))
    exact = open_segment(tmp_path, "dense", vectors, NUM_TEXTS)
    monkeypatch.setattr(dense, "MIN_GRAPH_TEXTS", NUM_TEXTS)
    (folder := tmp_path / "graph").mkdir()
    graph = open_segment(folder, "dense", vectors, NUM_TEXTS)
    for top in (1, TOP, NUM_TEXTS):
        rankings = zip(exact.rank(queries, top), graph.rank(queries, top), strict=True)
        for expected, ranking in rankings:
            np.testing.assert_allclose(ranking.scores, expected.scores, atol=2e-3)
            assert len(set(ranking.positions.tolist())) == top
    copies = graph.rank(vectors[5:6], 400)[0].positions[:148].tolist()
    assert copies == [n for n in range(1, NUM_TEXTS, 2) if n not in (41, 43)]


def test_vectors_with_equal_hashes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_hash_rows", lambda rows: np.zeros(len(rows), np.uint64))
    monkeypatch.setattr(dense, "GRAPH_BATCH", 2)
    vectors = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 1.0]], np.float16)
    assert dense.find_copies(vectors).tolist() == [[0, 2], [0, 4]]


@pytest.mark.parametrize("vector_type", VECTOR_TYPES)
def test_sparse_scores_are_dot_products_above_zero(tmp_path: Path, vector_type: VectorType) -> None:
    rows = random_sparse(NUM_TEXTS, 400, 0.02, "csr", np.float32, random_state=3)
    queries = random_sparse(6, 400, 0.02, "csr", np.float32, random_state=4)
    queries = vstack([queries, queries[:1] * 0], format="csr")
    segment = open_segment(tmp_path, "sparse", rows, NUM_TEXTS, vector_type=vector_type)
    tolerance = {"float32": 1e-5, "float16": 2e-3, "int8": 3e-2}[vector_type]
    require_scores(segment, queries, (queries @ rows.T).toarray(), tolerance)
    rankings = segment.rank(queries, TOP)
    assert len(rankings[-1].positions) == 0
    assert all((ranking.scores > 0).all() for ranking in rankings)


@pytest.mark.parametrize("vector_type", VECTOR_TYPES)
def test_late_interaction_scores_are_maxsim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vector_type: VectorType
) -> None:
    monkeypatch.setattr(late_interaction, "BLOCK_TOKENS", 50)
    monkeypatch.setattr(late_interaction, "QUERIES_AT_ONCE", 3)
    rng = np.random.default_rng(5)

    def unit_rows(length: int) -> np.ndarray:
        rows = rng.normal(size=(length, WIDTH)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    texts = [unit_rows(length) for length in rng.integers(1, 70, 60)]
    texts[0] = texts[9] = texts[-1] = unit_rows(0)
    queries = [unit_rows(length) for length in (4, 1, 0, 6)]
    expected = np.array(
        [[(q @ t.T).max(1).sum() if len(t) and len(q) else 0 for t in texts] for q in queries]
    )
    segment = open_segment(tmp_path, "late-interaction", texts, 60, vector_type=vector_type)
    tolerance = {"float32": 1e-5, "float16": 4e-3, "int8": 5e-2}[vector_type]
    require_scores(segment, queries, expected, tolerance)
