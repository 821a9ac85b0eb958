"""Encoders of fine-tuned models for retrieval: weights of tokens, and vectors of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from bertwright.models.retrieval_encoder import FloatMatrix, Representation
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.outputs.prediction import PredictingModel
from bertwright.tasks.outputs.vectors.late_interaction import LateInteractionDecoder
from bertwright.tasks.outputs.vectors.sparse import SparseDecoder

if TYPE_CHECKING:  # a model loads without SciPy
    from scipy.sparse import csr_matrix


class TextEncodingModel(PredictingModel, Protocol):
    """A model that tokenizes texts and computes the outputs of a head for them."""

    example_encoder: ExampleEncoder


@dataclass(frozen=True)
class TokenWeightEncoder:
    """An encoder of texts as weights of tokens: (N, V) CSR matrices."""

    model: TextEncodingModel
    decoder: SparseDecoder
    width: int
    representation: ClassVar[Representation] = "sparse"

    def encode_documents(self, texts: Sequence[str]) -> "csr_matrix":
        """Return the token weights of documents."""
        sequences = self.decoder.encode_documents(self.model.example_encoder, texts)
        return self.model.token_weights(sequences)

    def encode_queries(self, texts: Sequence[str]) -> "csr_matrix":
        """Return the token weights of queries."""
        sequences = self.decoder.encode_queries(self.model.example_encoder, texts)
        return self.model.token_weights(sequences)


@dataclass(frozen=True)
class TokenVectorEncoder:
    """An encoder of texts as a vector for every token: (tokens, D) float32 for each text."""

    model: TextEncodingModel
    decoder: LateInteractionDecoder
    representation: ClassVar[Representation] = "late-interaction"

    @property
    def width(self) -> int:
        """Return the number of dimensions of a vector."""
        return self.decoder.num_outputs

    def encode_documents(self, texts: Sequence[str]) -> list[FloatMatrix]:
        """Return the vectors of the tokens of documents."""
        sequences = self.decoder.encode_documents(self.model.example_encoder, texts)
        return self.decoder.vectors(self.model, sequences)

    def encode_queries(self, texts: Sequence[str]) -> list[FloatMatrix]:
        """Return the vectors of the tokens of queries."""
        sequences = self.decoder.encode_queries(self.model.example_encoder, texts)
        return self.decoder.vectors(self.model, sequences)
