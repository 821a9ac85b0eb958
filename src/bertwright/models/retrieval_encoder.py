"""Encoders for retrieval: texts and queries as what an index stores and compares.

There are three representations. Each has a pair of methods, one for the texts that are indexed and
one for queries, which may be encoded differently.

===================  ==========================================  ===============================
representation       of N texts                                  score of a query and a text
===================  ==========================================  ===============================
dense                (N, D) float32                              cosine
sparse               CSR matrix (N, V) float32, 0 or more        dot product
late-interaction     N matrices (tokens, D) float32, unit rows   sum over the query's tokens of
                                                                 the highest dot product (MaxSim)
===================  ==========================================  ===============================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # a model loads without SciPy
    from scipy.sparse import csr_matrix

    from bertwright.models.text_model import TextModel

FloatMatrix = NDArray[np.float32]
Representation = Literal["dense", "sparse", "late-interaction"]
TextVectors: TypeAlias = "FloatMatrix | csr_matrix | Sequence[FloatMatrix]"
"""Vectors of N texts, in the form of their representation."""


class RetrievalEncoder(Protocol):
    """An encoder of texts and queries in one representation.

    Vectors do not depend, apart from rounding, on the other texts of a call. A text without a known
    token has a row without entries (sparse), or a matrix without rows (late interaction).
    """

    representation: ClassVar[Representation]

    @property
    def width(self) -> int:
        """Return the dimensions of a dense or token vector, or the size of the vocabulary."""
        ...

    def encode_documents(self, texts: Sequence[str]) -> TextVectors:
        """Return the vectors of texts to index."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> TextVectors:
        """Return the vectors of queries."""
        ...


@dataclass(frozen=True)
class DenseEncoder:
    """An encoder with one vector per text, the same for texts and queries: :meth:`embed`."""

    model: "TextModel"
    representation: ClassVar[Representation] = "dense"

    @property
    def width(self) -> int:
        """Return the dimensions of a vector."""
        return self.model.embed([]).shape[1]

    def encode_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (N, D) float32."""
        return self.model.embed(texts)

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (N, D) float32."""
        return self.model.embed(texts)
