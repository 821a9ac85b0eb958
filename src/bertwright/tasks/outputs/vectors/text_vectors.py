"""Scores between representations of texts: dense vectors, weights of tokens, vectors of tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from bertwright.models.retrieval_encoder import FloatMatrix, TextVectors
from bertwright.tasks.outputs.probabilities import FloatArray

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


DOCUMENTS_PER_PRODUCT = 1024
"""Number of documents whose token vectors are compared with a query at once."""


class SparseEntries:
    """The entries of a sparse matrix (N, V), added in any order of rows."""

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self.shape = (num_rows, num_columns)
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]] = []

    def add(self, rows: NDArray[np.int64], columns: NDArray[np.int64], values: FloatArray) -> None:
        """Add entries (n,) at these rows and columns, which have none yet."""
        self._parts.append((rows, columns, values))

    def matrix(self) -> "csr_matrix":
        """Return the matrix as float32."""
        from scipy.sparse import csr_matrix  # a model loads without it

        if not self._parts:
            return csr_matrix(self.shape, dtype=np.float32)
        rows, columns, values = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return csr_matrix((values, (rows, columns)), self.shape)


def score_matrix(queries: TextVectors, documents: TextVectors) -> NDArray[np.float64]:
    """Return the scores (Q, N) of all documents for every query.

    The score is the cosine of dense vectors, the product of token weights, and the late interaction
    of vectors of tokens: for each of the query the largest product with one of the document, summed
    (Khattab and Zaharia 2020, equation 3).
    """
    from scipy.sparse import issparse  # a model loads without it

    if issparse(queries):
        products = cast("csr_matrix", queries) @ cast("csr_matrix", documents).T
        return np.asarray(products.toarray(), np.float64)
    if isinstance(queries, np.ndarray):
        unit_queries, unit_documents = normalise(queries), normalise(cast(FloatMatrix, documents))
        return (unit_queries @ unit_documents.T).astype(np.float64)
    queries, documents = (cast(Sequence[FloatMatrix], texts) for texts in (queries, documents))
    scores = np.empty((len(queries), len(documents)), np.float64)
    for start in range(0, len(documents), DOCUMENTS_PER_PRODUCT):
        part = documents[start : start + DOCUMENTS_PER_PRODUCT]
        starts = np.cumsum([0, *(len(vectors) for vectors in part[:-1])])
        tokens = np.concatenate(part)
        for row, query in enumerate(queries):
            largest = np.maximum.reduceat(query @ tokens.T, starts, axis=1)
            scores[row, start : start + len(part)] = largest.sum(0)
    return scores


def stack_vectors(rows: Sequence[Any]) -> TextVectors:
    """Return the representations of texts as one value, given one for each text."""
    from scipy.sparse import issparse, vstack

    if issparse(rows[0]):
        return cast("csr_matrix", vstack(rows, "csr"))
    return np.stack(rows) if rows[0].ndim == 1 else list(rows)


def normalise(vectors: FloatArray) -> FloatArray:
    """Return vectors (N, D) scaled to length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
