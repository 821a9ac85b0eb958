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

from bertwright.core.operating_system import reserve_space
from bertwright.core.optional_dependencies import require_library
from bertwright.models.retrieval_encoder import FloatMatrix, TextVectors
from bertwright.retrieval.rankings import Ranking, top_ranking
from bertwright.retrieval.settings import IndexSettings, VectorType
from bertwright.retrieval.vectors.segment import VectorSegment, compress_rows, normalise_rows

MIN_GRAPH_TEXTS = 16_384
"""Number of texts from which on a segment has a graph."""

CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 16, 128, 128
"""Neighbours of a vector in the graph; candidates that are considered to insert and to search."""

VECTORS_FILE, GRAPH_FILE, COPIES_FILE = "vectors.npy", "graph.usearch", "copies.npy"
GRAPH_BATCH = 4096


class DenseSegment(VectorSegment):
    """Dense vectors of a segment, with a graph if it is large.

    Equal vectors would fill the neighbours of each other in a graph, which then finds little else.
    The graph holds the first of them, and ``copies`` (M, 2) the positions of the first and of each
    other one.
    """

    def __init__(
        self,
        vectors: Any,
        graph: Any,
        copies: NDArray[np.int64],
        settings: IndexSettings,
        num_texts: int,
    ) -> None:
        self._vectors, self._graph, self._copies = vectors, graph, copies
        self._settings, self._num_texts = settings, num_texts

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
                reserve_space(folder / VECTORS_FILE)
            stored[start : start + len(vectors)] = vectors
            start += len(vectors)
        if num_texts >= MIN_GRAPH_TEXTS and not settings.exact:
            copies = find_copies(stored)
            np.save(folder / COPIES_FILE, copies)
            _write_graph(folder / GRAPH_FILE, stored, copies[:, 1], settings.vector_type)
            del stored
            (folder / VECTORS_FILE).unlink()

    @classmethod
    def open(cls, folder: Path, num_texts: int, settings: IndexSettings) -> Self:
        """Map the vectors or the graph into memory."""
        require_library("usearch", "search")
        from usearch.index import Index

        if (folder / VECTORS_FILE).is_file():
            vectors = np.load(folder / VECTORS_FILE, mmap_mode="r", allow_pickle=False)
            return cls(np.asarray(vectors), None, np.empty((0, 2), np.int64), settings, num_texts)
        graph = Index.restore(str(folder / GRAPH_FILE), view=True)
        assert graph is not None
        graph.expansion_search = EXPANSION_SEARCH
        copies = np.load(folder / COPIES_FILE, mmap_mode="r", allow_pickle=False)
        return cls(None, graph, copies, settings, num_texts)

    def rank(self, queries: TextVectors, top: int) -> list[Ranking]:
        """Return the texts with the highest cosines."""
        from usearch.index import Matches, search

        vectors = _compress(cast(FloatMatrix, queries), self._settings)
        top = min(top, self._num_texts)
        # Starting threads takes longer than to search for one query.
        threads = 1 if len(vectors) == 1 else 0
        if self._graph is None:
            matches = search(self._vectors, vectors, top, "cos", exact=True, threads=threads)
        else:
            matches = self._graph.search(vectors, min(top, len(self._graph)), threads=threads)
        by_query = [matches] if isinstance(matches, Matches) else matches
        return [
            self._with_copies(match.keys.astype(np.int64), 1 - match.distances, top)
            for match in by_query
        ]

    def _with_copies(
        self, positions: NDArray[np.int64], scores: NDArray[np.float32], top: int
    ) -> Ranking:
        """Return the ranking of texts (K,) and of all others with the same vectors."""
        firsts = self._copies[:, 0]
        starts = np.searchsorted(firsts, positions, side="left")
        counts = np.searchsorted(firsts, positions, side="right") - starts
        offsets = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        copies = self._copies[np.repeat(starts, counts) + offsets, 1]
        return top_ranking(
            np.concatenate((scores, np.repeat(scores, counts))),
            top,
            np.concatenate((positions, copies)),
        )


def _compress(vectors: FloatMatrix, settings: IndexSettings) -> NDArray[Any]:
    return compress_rows(normalise_rows(vectors, settings.dimensions), settings.vector_type)


_SCALAR_KINDS: dict[VectorType, str] = {"float32": "f32", "float16": "f16", "int8": "i8"}


def find_copies(vectors: NDArray[Any]) -> NDArray[np.int64]:
    """Return the positions (M, 2) of the first of equal vectors (N, D) and of each other, sorted.

    Equal vectors are found by a hash, and then compared.
    """
    hashes = np.concatenate([_hash_rows(vectors[s]) for s in _slices(len(vectors))])
    order = np.argsort(hashes, kind="stable")
    is_first = np.diff(hashes[order], prepend=~hashes[order][:1]) != 0
    firsts = order[is_first][np.cumsum(is_first) - 1]
    pairs = np.stack((firsts, order), axis=1)[~is_first]
    is_equal = [(vectors[pairs[s, 0]] == vectors[pairs[s, 1]]).all(1) for s in _slices(len(pairs))]
    copies = pairs[np.concatenate([np.empty(0, np.bool_), *is_equal])]
    return copies[np.lexsort(copies.T[::-1])]


def _hash_rows(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of each row (N, D)."""
    columns = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    factors = np.random.default_rng(0).integers(1 << 63, size=columns.shape[1], dtype=np.uint64)
    return columns @ factors


def _slices(size: int) -> list[slice]:
    return [slice(start, start + GRAPH_BATCH) for start in range(0, size, GRAPH_BATCH)]


def _write_graph(
    file: Path, vectors: NDArray[Any], left_out: NDArray[np.int64], vector_type: VectorType
) -> None:
    """Insert vectors in order by one thread, so that the graph is the same in every run."""
    from usearch.index import Index

    graph = Index(
        ndim=vectors.shape[1],
        metric="cos",
        dtype=_SCALAR_KINDS[vector_type],
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
    )
    inserted = np.delete(np.arange(len(vectors)), left_out)
    for positions in (inserted[s] for s in _slices(len(inserted))):
        graph.add(positions, np.ascontiguousarray(vectors[positions]), threads=1)
    graph.save(str(file))
