"""Tensors that accompany the tokens of a batch.

Shapes: B sequences of L positions, width D, H heads of width d.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bertwright.batches.token_info import BaseTokenInfo, TokenInfoArrays


@dataclass(frozen=True, slots=True, eq=False)
class TokenInfo(BaseTokenInfo[Tensor]):
    """Metadata of each token that the encoder reads, in tensors."""

    index: Tensor  # pyright: ignore[reportGeneralTypeIssues] (required here)

    @staticmethod
    def from_token_ids(token_ids: Tensor) -> "TokenInfo":
        """Return the metadata of sequences without padding, with one document each."""
        return TokenInfo(torch.arange(token_ids.shape[1], device=token_ids.device)[None])

    @staticmethod
    def from_arrays(info: TokenInfoArrays, token_ids: Tensor) -> "TokenInfo":
        """Return the metadata for ``token_ids`` (B, L) on their device."""
        tensors = {
            name: torch.from_numpy(values).to(
                token_ids.device, torch.bool if values.dtype == np.bool_ else torch.int64
            )
            for name, values in info.encoder_inputs().items()
        }
        return replace(TokenInfo.from_token_ids(token_ids), **tensors)

    @property
    def resolved_position_ids(self) -> Tensor:
        """Return the position of every token, (B or 1, L)."""
        return self.index if self.position_ids is None else self.position_ids

    @property
    def has_indices_only(self) -> bool:
        """Return whether an attention mask can depend only on the index."""
        return self.arrays().keys() <= {
            *("index", "language_ids", "task_ids", "is_backward", "text_lengths")
        }

    @property
    def num_sequences(self) -> int:
        """Return the number of sequences with different metadata, B or 1."""
        return max(values.shape[0] for values in self.arrays().values())

    def with_text_lengths(self) -> "TokenInfo":
        """Return a copy with ``text_lengths`` filled in."""
        if self.text_lengths is not None:
            return self
        real = torch.ones_like(self.index, dtype=torch.bool)
        if self.document_ids is not None:
            real = self.document_ids >= 0
        if self.position_ids is None or self.is_backward is not None:
            return replace(self, text_lengths=real.sum(-1, keepdim=True).expand_as(real))
        texts, real = torch.broadcast_tensors((self.position_ids == 0).cumsum(-1), real)
        counts = texts.new_zeros(len(texts), texts.shape[1] + 1).scatter_add_(1, texts, real.long())
        return replace(self, text_lengths=counts.gather(1, texts))

    def with_language(self, token_ids: Tensor, language: int | None) -> "TokenInfo":
        """Return a copy with the language set for ``token_ids`` (B, L); None changes nothing."""
        if language is None:
            return self
        return replace(self, language_ids=torch.full_like(token_ids, language))

    def map(self, function: Callable[[Tensor], Tensor]) -> "TokenInfo":
        """Return a copy with a function applied to every tensor."""
        return replace(self, **{name: function(t) for name, t in self.arrays().items()})

    def select(self, sequences: Tensor) -> "TokenInfo":
        """Return the metadata of the sequences with these indices, (N,) int64."""
        return self.map(lambda t: t if len(t) == 1 else t.index_select(0, sequences))

    def as_queries(self) -> "TokenInfo":
        """Return the metadata as queries, (B, L, 1)."""
        return self.with_text_lengths().map(lambda t: t.unsqueeze(-1))

    def as_keys(self) -> "TokenInfo":
        """Return the metadata as keys, (B, 1, L)."""
        return self.with_text_lengths().map(lambda t: t.unsqueeze(-2))


@dataclass(frozen=True)
class CrossAttentionSource:
    """Encoder output for a decoder: hidden states (B, S, D) and the metadata of their tokens."""

    hidden_states: Tensor
    token_info: TokenInfo

    def select(self, sequences: Tensor) -> "CrossAttentionSource":
        """Return the source of the sequences with these indices, (N,) int64."""
        return CrossAttentionSource(
            self.hidden_states.index_select(0, sequences), self.token_info.select(sequences)
        )
