"""Sparse vectors: weights of vocabulary entries, compared by their dot product.

Rows of texts are stored by column: for every term the texts that have it, with their weights. A
query adds up the columns of its own terms.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from bertwright.models.retrieval_encoder import TextVectors
from bertwright.retrieval.rankings import Ranking, top_matches
from bertwright.retrieval.settings import IndexSettings
from bertwright.retrieval.vectors.segment import INT8_MAX, VectorSegment, split_vectors

ARRAYS = ("starts", "texts", "weights", "scale")
"""Offsets of the columns (V + 1,); texts and their weights (E,); the value of a weight of 1."""


class SparseSegment(VectorSegment):
    """Sparse vectors of a segment, by term."""

    def __init__(self, arrays: dict[str, NDArray[Any]], num_texts: int) -> None:
        self._starts, self._texts, self._weights, scale = (arrays[name] for name in ARRAYS)
        self._scale = float(scale)
        self._num_texts = num_texts

    @classmethod
    def write(
        cls, folder: Path, batches: Iterable[TextVectors], num_texts: int, settings: IndexSettings
    ) -> None:
        """Write the columns of all rows; the whole segment is in memory meanwhile."""
        rows = [cast(csr_matrix, batch).astype(np.float32) for batch in batches]
        matrix: Any = vstack(rows, format="csc")
        matrix.sort_indices()
        weights, scale = matrix.data, 1.0
        if settings.vector_type == "int8":
            scale = float(weights.max(initial=0.0) or 1.0) / INT8_MAX
            weights = np.rint(weights / scale)
        arrays = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
        arrays += (weights.astype(settings.vector_type), np.float32(scale))
        for name, array in zip(ARRAYS, arrays, strict=True):
            np.save(folder / f"{name}.npy", array)

    @classmethod
    def open(cls, folder: Path, num_texts: int, settings: IndexSettings) -> Self:
        """Map the columns into memory."""
        arrays = {
            name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            for name in ARRAYS
        }
        return cls(arrays, num_texts)

    def rank(self, queries: TextVectors, top: int) -> list[Ranking]:
        """Return the texts with the highest dot products, if they are above 0."""
        rows = split_vectors(queries)
        return [top_matches(self._scores(row), top) for row in rows]

    def _scores(self, query: Any) -> NDArray[np.float32]:
        scores = np.zeros(self._num_texts, np.float32)
        for term, weight in zip(query.indices, query.data, strict=True):
            column = slice(self._starts[term], self._starts[term + 1])
            # A text occurs once in a column.
            scores[self._texts[column]] += weight * self._scale * self._weights[column]
        return scores
