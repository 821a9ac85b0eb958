"""Embeddings that read the spelling of a token."""

from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.modules.embeddings.embeddings import EmbeddingsConfig


class SpelledEmbeddingsConfig(EmbeddingsConfig):
    """Embeddings computed from the characters of a token.

    At most ``longest`` characters are read. The embeddings cannot be tied to the output.
    """

    longest: int = Field(default=50, ge=3, le=1_024)

    has_single_table: ClassVar[bool] = False


class SpelledEmbedding(nn.Module):
    """A base class of embeddings with the characters of every token.

    ``spelling`` (V, C) int16 is a buffer; see
    :mod:`bertwright.data.tokenization.character_ids`.
    """

    def __init__(self, vocab_size: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.register_buffer("spelling", torch.zeros(vocab_size, longest, dtype=torch.int16))

    def set_spelling(self, characters: NDArray[np.int16]) -> None:
        """Set the character IDs of all tokens, (V, C)."""
        cast(Tensor, self.spelling).copy_(torch.from_numpy(characters))

    def spelling_of(self, token_ids: Tensor) -> Tensor:
        """Return the character IDs (N, C) int64 of token_ids (N,)."""
        return cast(Tensor, self.spelling)[token_ids].long()
