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
    from bertwright.recipes import SentenceVectorSettings

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
    """An encoder with one vector per text: :meth:`embed`, with the settings of the recipe.

    These are the prompts before queries and texts, scaling, and truncation of vectors; they give
    what ``encode_query`` and ``encode_document`` of sentence-transformers give.
    """

    model: "TextModel"
    representation: ClassVar[Representation] = "dense"

    @property
    def width(self) -> int:
        """Return the dimensions of a vector."""
        return self._embed([]).shape[1]

    def encode_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (N, D) float32."""
        return self._embed(self.prompted_documents(texts))

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (N, D) float32."""
        return self._embed([f"{self._settings.query_prompt}{text}" for text in texts])

    def encode_chunks(self, texts: Sequence[str], max_tokens: int) -> list[FloatMatrix]:
        """Return the vectors (C, D) of the chunks of each text; see :meth:`TextModel.embed_chunks`.

        The prompt stands before each text, and belongs to its first chunk.
        """
        settings = self._settings
        chunks = self.model.embed_chunks(
            texts, max_tokens, normalise=settings.normalise, prompt=settings.document_prompt
        )
        return [part.vectors[:, : settings.truncate_dim] for part in chunks]

    def chunk_offsets(self, text: str, max_tokens: int) -> NDArray[np.int64]:
        """Return the characters [start, stop) of each chunk of a text, (C, 2)."""
        return self.model.chunk_encoder(max_tokens, self._settings.document_prompt).offsets(text)

    def prompted_documents(self, texts: Sequence[str]) -> list[str]:
        """Return texts to index with the prompt before them."""
        return [f"{self._settings.document_prompt}{text}" for text in texts]

    @property
    def _settings(self) -> "SentenceVectorSettings":
        return self.model.model.recipe.vectors

    def _embed(self, texts: Sequence[str]) -> FloatMatrix:
        settings = self._settings
        vectors = self.model.embed(texts, normalise=settings.normalise)
        return vectors[:, : settings.truncate_dim]
