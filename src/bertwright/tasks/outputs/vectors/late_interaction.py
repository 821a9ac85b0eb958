"""Late interaction for retrieval: every token of a text has a vector (ColBERT).

The score of a document is the sum, over the vectors of the query, of the largest product with a
vector of the document.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.retrieval_encoder import FloatMatrix
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs.output_decoder import OutputDecoder, SequenceOutputs
from bertwright.tasks.outputs.prediction import PredictingModel, Prediction
from bertwright.tasks.outputs.probabilities import FloatArray
from bertwright.tasks.outputs.vectors.matching import RetrievalDecoder, RetrievalOutput
from bertwright.tasks.outputs.vectors.text_vectors import score_matrix

MARKER_TOKENS = ("[unused0]", "[unused1]")
"""Tokens that mark queries and documents, in vocabularies that have them (BERT)."""


@dataclass(frozen=True)
class LateInteractionDecoder(RetrievalDecoder):
    """The decoder of :class:`LateInteractionOutput`.

    Outputs (M, L, K) are zero at the positions that have no vector.
    """

    config: "LateInteractionOutput"

    @property
    def num_outputs(self) -> int:
        return self.config.dimension

    def encode_queries(
        self, example_encoder: ExampleEncoder, queries: Sequence[str]
    ) -> list[TaskSequence]:
        """Return one sequence for every query, extended by mask tokens to the same length."""
        tokenizer = example_encoder.tokenizer
        length = min(self.config.query_length, example_encoder.max_length)
        mask, sequences = tokenizer.special_tokens.mask, list[TaskSequence]()
        for sequence in self.query_prefix(tokenizer).sequences(example_encoder, queries, length):
            num_masks = length - len(sequence.token_ids)
            segments = sequence.segment_ids
            sequences.append(
                replace(
                    sequence,
                    token_ids=[*sequence.token_ids, *[mask] * num_masks],
                    segment_ids=None if segments is None else [*segments, *[0] * num_masks],
                    positions=tuple(range(length)),
                )
            )
        return sequences

    def encode_documents(
        self, example_encoder: ExampleEncoder, documents: Sequence[str]
    ) -> list[TaskSequence]:
        """Return one sequence for every document; punctuation has no vectors."""
        tokenizer = example_encoder.tokenizer
        sequences = self.document_prefix(tokenizer).sequences(example_encoder, documents)
        skipped = punctuation_ids(tokenizer) if self.config.skip_punctuation else frozenset[int]()
        return [
            replace(
                sequence,
                positions=tuple(
                    n for n, token in enumerate(sequence.token_ids) if token not in skipped
                ),
            )
            for sequence in sequences
        ]

    def query_prefix(self, tokenizer: Tokenizer) -> "TextPrefix":
        """Return what stands before every query."""
        return TextPrefix.read(tokenizer, self.config.query_prefix, MARKER_TOKENS[0])

    def document_prefix(self, tokenizer: Tokenizer) -> "TextPrefix":
        """Return what stands before every document."""
        return TextPrefix.read(tokenizer, self.config.document_prefix, MARKER_TOKENS[1])

    def pair_scores(self, firsts: Tensor, seconds: Tensor) -> Tensor:
        return largest_products(firsts @ seconds.transpose(1, 2), seconds)

    def scores(self, firsts: Tensor, seconds: Tensor) -> Tensor:
        products = torch.einsum("ald,bmd->ablm", firsts, seconds)
        return largest_products(products, seconds)

    def vectors(
        self, model: PredictingModel, sequences: Sequence[TaskSequence]
    ) -> list[FloatMatrix]:
        return [kept_vectors(outputs[0]) for outputs in model.head_outputs(sequences)]

    def decode_example(self, example: Example, parts: Sequence[SequenceOutputs]) -> Prediction:
        self.require_document(parts)
        vectors = [kept_vectors(outputs[0]) for _, outputs in parts]
        return Prediction(float(score_matrix(vectors[:1], vectors[1:2])[0, 0]), vectors=vectors)


class LateInteractionOutput(RetrievalOutput):
    """The score of a document for a query: for each vector of the query its largest product.

    Attributes:
        dimension: number of dimensions of the vectors.
        query_length: number of tokens of every query, special tokens included; mask tokens, which
            have vectors as well, extend shorter queries (Khattab and Zaharia 2020, section 3.2).
        query_prefix, document_prefix: text before every query and document; None for the tokens
            [unused0] and [unused1], if the vocabulary has them.
        skip_punctuation: leave out the vectors of punctuation in documents.
    """

    kind: Literal["late-interaction"] = "late-interaction"
    dimension: int = Field(default=128, ge=1, le=65_536)
    query_length: int = Field(default=32, ge=4, le=65_536)
    query_prefix: str | None = None
    document_prefix: str | None = None
    skip_punctuation: bool = True
    decoder_type: ClassVar[type[OutputDecoder]] = LateInteractionDecoder

    @property
    def has_output_positions(self) -> bool:
        return True


def largest_products(products: Tensor, documents: Tensor) -> Tensor:
    """Return the sums (..., B) of the largest products over the vectors of documents.

    products: (..., B, Lq, Ld); documents: (B, Ld, K), zero where there is no vector. A query has
    zeros there as well, which add nothing.
    """
    has_vector = (documents != 0).any(-1)
    return products.masked_fill(~has_vector[:, None], -torch.inf).amax(-1).sum(-1)


def kept_vectors(outputs: FloatArray) -> FloatArray:
    """Return the vectors (tokens, K) of outputs (L, K), without the zeros between them."""
    return outputs[outputs.any(1)]


@dataclass(frozen=True)
class TextPrefix:
    """What stands before every text of a kind: a token that no text contains, or text."""

    token: str = ""
    token_ids: tuple[int, ...] = ()
    text: str = ""

    @staticmethod
    def read(tokenizer: Tokenizer, prefix: str | None, marker: str) -> "TextPrefix":
        """Return the prefix of a setting; None for the marker, if the vocabulary has it."""
        token = marker if prefix is None else prefix
        token_id = tokenizer.token_to_id(token)
        is_special = token_id in tokenizer.reserved_ids
        if token_id is not None and (is_special or tokenizer.encode(token) != [token_id]):
            return TextPrefix(token, (token_id,))
        return TextPrefix(text=f"{prefix} " if prefix else "")

    def sequences(
        self, example_encoder: ExampleEncoder, texts: Sequence[str], max_length: int | None = None
    ) -> list[TaskSequence]:
        """Return the sequences of texts with this prefix."""
        prefixed = [f"{self.text}{text}" for text in texts]
        return example_encoder.encode_texts(prefixed, max_length, self.token_ids)


def punctuation_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of the tokens that are a single punctuation mark."""
    ids = (tokenizer.token_to_id(mark) for mark in string.punctuation)
    return frozenset(token_id for token_id in ids if token_id is not None)
