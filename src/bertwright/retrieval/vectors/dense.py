"""Dense vectors, one per text, compared by their cosine.

A small segment is compared with every query as a whole. A larger one has a graph of neighbours
(HNSW, Malkov and Yashunin 2018), which holds the vectors itself. Both are by usearch, which maps
files into memory, compares int8 as it is, and brings no other OpenMP or BLAS beside PyTorch's.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from bertwright.core.optional_dependencies import require_library
from bertwright.models.retrieval_encoder import FloatMatrix, TextVectors
from bertwright.retrieval.rankings import Ranking, top_ranking
from bertwright.retrieval.settings import IndexSettings, VectorType
from bertwright.retrieval.vectors.segment import VectorSegment, compress_rows, normalise_rows

MIN_GRAPH_TEXTS = 16_384
"""Number of texts from which on a segment has a graph."""

CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 16, 128, 128
"""Neighbours of a vector in the graph; candidates that are considered to insert and to search."""

VECTORS_FILE, GRAPH_FILE = "vectors.npy", "graph.usearch"
GRAPH_BATCH = 4096


class DenseSegment(VectorSegment):
    """Dense vectors of a segment, with a graph if it is large."""

    def __init__(self, vectors: Any, graph: Any, settings: IndexSettings, num_texts: int) -> None:
        self._vectors, self._graph, self._settings = vectors, graph, settings
        self._num_texts = num_texts

    @classmethod
    def write(
        cls, folder: Path, batches: Iterable[TextVectors], num_texts: int, settings: IndexSettings
    ) -> None:
        """Write ``vectors.npy`` (N, D), or a graph instead."""
        require_library("usearch", "search")
        stored: Any = None
        start = 0
        for batch in batches:
            vectors = _compress(cast(FloatMatrix, batch), settings)
            if stored is None:
                shape = (num_texts, vectors.shape[1])
                stored = open_memmap(folder / VECTORS_FILE, "w+", vectors.dtype, shape)
            stored[start : start + len(vectors)] = vectors
            start += len(vectors)
        if num_texts >= MIN_GRAPH_TEXTS and not settings.exact:
            _write_graph(folder / GRAPH_FILE, stored, settings.vector_type)
            del stored
            (folder / VECTORS_FILE).unlink()

    @classmethod
    def open(cls, folder: Path, num_texts: int, settings: IndexSettings) -> Self:
        """Map the vectors or the graph into memory."""
        require_library("usearch", "search")
        from usearch.index import Index

        if (folder / VECTORS_FILE).is_file():
            vectors = np.load(folder / VECTORS_FILE, mmap_mode="r", allow_pickle=False)
            return cls(np.asarray(vectors), None, settings, num_texts)
        graph = Index.restore(str(folder / GRAPH_FILE), view=True)
        assert graph is not None
        graph.expansion_search = EXPANSION_SEARCH
        return cls(None, graph, settings, num_texts)

    def rank(self, queries: TextVectors, top: int) -> list[Ranking]:
        """Return the texts with the highest cosines."""
        from usearch.index import search

        vectors = _compress(cast(FloatMatrix, queries), self._settings)
        top = min(top, self._num_texts)
        # Starting threads takes longer than to search for one query.
        threads = 1 if len(vectors) == 1 else 0
        if self._graph is None:
            matches = search(self._vectors, vectors, top, "cos", exact=True, threads=threads)
        else:
            matches = self._graph.search(vectors, top, threads=threads)
        positions, distances = np.atleast_2d(matches.keys), np.atleast_2d(matches.distances)
        return [
            top_ranking(1 - row_distances, top, row_positions.astype(np.int64))
            for row_positions, row_distances in zip(positions, distances, strict=True)
        ]


def _compress(vectors: FloatMatrix, settings: IndexSettings) -> NDArray[Any]:
    return compress_rows(normalise_rows(vectors, settings.dimensions), settings.vector_type)


_SCALAR_KINDS: dict[VectorType, str] = {"float32": "f32", "float16": "f16", "int8": "i8"}


def _write_graph(file: Path, vectors: NDArray[Any], vector_type: VectorType) -> None:
    """Insert vectors in order by one thread, so that the graph is the same in every run."""
    from usearch.index import Index

    graph = Index(
        ndim=vectors.shape[1],
        metric="cos",
        dtype=_SCALAR_KINDS[vector_type],
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
    )
    for start in range(0, len(vectors), GRAPH_BATCH):
        batch = np.ascontiguousarray(vectors[start : start + GRAPH_BATCH])
        graph.add(np.arange(start, start + len(batch)), batch, threads=1)
    graph.save(str(file))
