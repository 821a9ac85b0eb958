"""The protocol of vector segments, and operations on vectors of any representation."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse, vstack

from bertwright.models.retrieval_encoder import FloatMatrix, TextVectors
from bertwright.retrieval.rankings import Ranking
from bertwright.retrieval.settings import IndexSettings, VectorType

INT8_MAX = 127


class VectorSegment(ABC):
    """The vectors of a segment's texts in files, memory-mapped, and their scores for queries."""

    @classmethod
    @abstractmethod
    def write(
        cls, folder: Path, batches: Iterable[TextVectors], num_texts: int, settings: IndexSettings
    ) -> None:
        """Write the vectors of ``num_texts`` texts, in batches, into files of a folder."""

    @classmethod
    @abstractmethod
    def open(cls, folder: Path, num_texts: int, settings: IndexSettings) -> Self:
        """Open the files of a folder."""

    @abstractmethod
    def rank(self, queries: TextVectors, top: int) -> list[Ranking]:
        """Return the best texts of the segment for the vectors of each query."""


def split_vectors(vectors: TextVectors) -> list[TextVectors]:
    """Return the vectors of every text alone."""
    parts: Any = vectors
    return [parts[number : number + 1] for number in range(num_vectors(vectors))]


def join_vectors(parts: Sequence[TextVectors]) -> TextVectors:
    """Return the vectors of all texts together."""
    if issparse(parts[0]):
        return cast(csr_matrix, vstack(parts, format="csr"))
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(cast(Sequence[FloatMatrix], parts))
    return [matrix for part in cast(Sequence[Sequence[FloatMatrix]], parts) for matrix in part]


def num_vectors(vectors: TextVectors) -> int:
    """Return the number of texts."""
    return len(vectors) if isinstance(vectors, Sequence) else cast(Any, vectors).shape[0]


def flatten_vectors(vectors: TextVectors) -> NDArray[np.float32]:
    """Return all vectors of a few texts as one vector, to compare models."""
    if issparse(vectors):
        vectors = cast(FloatMatrix, cast(csr_matrix, vectors).toarray())
    matrices = [vectors] if isinstance(vectors, np.ndarray) else cast(list[FloatMatrix], vectors)
    return np.concatenate([matrix.ravel() for matrix in matrices]).astype(np.float32)


def normalise_rows(matrix: NDArray[Any], dimensions: int | None = None) -> FloatMatrix:
    """Return the first dimensions of rows (N, D), each scaled to length 1; zeros stay zeros."""
    rows = np.asarray(matrix[:, :dimensions], np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


def compress_rows(unit: FloatMatrix, vector_type: VectorType) -> NDArray[Any]:
    """Return unit rows (N, D) in another type; int8 uses its full range for every row.

    The scale of a row is not stored: rows are compared by their cosine, or scaled to length 1.
    """
    if vector_type != "int8":
        return unit.astype(vector_type)
    largest = np.abs(unit).max(1, keepdims=True)
    return np.rint(unit * INT8_MAX / np.where(largest, largest, 1)).astype(np.int8)
