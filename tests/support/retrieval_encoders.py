"""Encoders of texts by their words, for search indexes: no model, and no training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from scipy.sparse import csr_matrix

from bertwright.models.retrieval_encoder import FloatMatrix, Representation
from bertwright.models.text_model import TextModel

WIDTH = 32
VOCABULARY = 512


@dataclass
class WordEncoder:
    """An encoder in one representation, in which texts with the same words are alike.

    ``fails_after`` is a number of texts: more of them raise KeyboardInterrupt, as in a killed
    process.
    """

    representation: Representation
    seed: int = 0
    fails_after: int | None = None
    num_texts: int = 0

    @property
    def width(self) -> int:
        return VOCABULARY if self.representation == "sparse" else WIDTH

    def encode_documents(self, texts: Sequence[str]) -> Any:
        self.num_texts += len(texts)
        if self.fails_after is not None and self.num_texts > self.fails_after:
            raise KeyboardInterrupt
        return self.encode_queries(texts)

    def encode_queries(self, texts: Sequence[str]) -> Any:
        if self.representation == "sparse":
            return csr_matrix([self._counts(text) for text in texts], dtype=np.float32)
        tokens = [self._tokens(text) for text in texts]
        if self.representation == "late-interaction":
            return tokens
        return np.stack([matrix.sum(0) for matrix in tokens])

    def _numbers(self, text: str) -> list[int]:
        return [crc32(f"{self.seed} {word}".encode()) for word in text.lower().split()]

    def _counts(self, text: str) -> FloatMatrix:
        return np.bincount([n % VOCABULARY for n in self._numbers(text)], minlength=VOCABULARY)

    def _tokens(self, text: str) -> FloatMatrix:
        rows = [np.random.default_rng(n).normal(size=WIDTH) for n in self._numbers(text)]
        matrix = np.array(rows, np.float32).reshape(len(rows), WIDTH)
        return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


class EncoderModel(TextModel):
    """A model that only has an encoder for retrieval."""

    def __init__(self, encoder: WordEncoder) -> None:
        self.encoder = encoder

    def retrieval_encoder(self) -> WordEncoder:
        return self.encoder
