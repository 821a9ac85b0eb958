"""Tensors that accompany the tokens of a batch.

Shapes: B sequences, L positions in a sequence, D width, H heads, d width of a head.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenInfo:
    """Attributes of the tokens of a batch, each (B, L) int64 or None.

    ``index`` is the index in the sequence and broadcasts to (B, L). ``position_ids`` None means
    0..L-1 in every sequence. ``document_ids`` None means one document per sequence without padding;
    padding has document -1. ``factorisation_order`` is the rank of a token in a factorisation of
    the text. ``language_ids`` and ``task_ids`` None mean the first language and the first task.
    ``is_query_stream`` (bool) marks query tokens, which know their position but not their content:
    they come last in the sequence and are never attended to. ``is_backward`` (bool) marks sequences
    read from the end of their text, with positions counting down; each holds one text.
    ``text_lengths`` is the number of real tokens of a token's text, where a text begins at position
    0; see ``with_text_lengths``.
    """

    index: Tensor
    position_ids: Tensor | None = None
    segment_ids: Tensor | None = None
    document_ids: Tensor | None = None
    factorisation_order: Tensor | None = None
    is_query_stream: Tensor | None = None
    language_ids: Tensor | None = None
    task_ids: Tensor | None = None
    is_backward: Tensor | None = None
    text_lengths: Tensor | None = None

    @staticmethod
    def from_token_ids(token_ids: Tensor) -> "TokenInfo":
        """Return the attributes of sequences without padding: one document each."""
        return TokenInfo(torch.arange(token_ids.shape[1], device=token_ids.device)[None])

    @property
    def resolved_position_ids(self) -> Tensor:
        """The position of every token, (B or 1, L)."""
        return self.index if self.position_ids is None else self.position_ids

    @property
    def has_indices_only(self) -> bool:
        """Whether an attention mask can depend on nothing but the index."""
        others = (
            self.position_ids,
            self.segment_ids,
            self.document_ids,
            self.factorisation_order,
            self.is_query_stream,
        )
        return all(values is None for values in others)

    @property
    def num_sequences(self) -> int:
        """The number of sequences they distinguish: 1 where all are alike."""
        tensors = (getattr(self, field.name) for field in fields(self))
        return max(values.shape[0] for values in tensors if values is not None)

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
        """Return a copy for token_ids (B, L) in one language; None changes nothing."""
        if language is None:
            return self
        return replace(self, language_ids=torch.full_like(token_ids, language))

    def map(self, function: Callable[[Tensor], Tensor]) -> "TokenInfo":
        """Apply a function to every attribute."""
        tensors = (getattr(self, field.name) for field in fields(self))
        return TokenInfo(*(None if t is None else function(t) for t in tensors))  # type: ignore[arg-type]

    def select(self, sequences: Tensor) -> "TokenInfo":
        """Return the attributes of some sequences (N,) int64."""
        return self.map(lambda t: t if len(t) == 1 else t.index_select(0, sequences))

    def as_queries(self) -> "TokenInfo":
        """Return the attributes as queries: (B, L, 1)."""
        return self.with_text_lengths().map(lambda t: t.unsqueeze(-1))

    def as_keys(self) -> "TokenInfo":
        """Return the attributes as keys: (B, 1, L)."""
        return self.with_text_lengths().map(lambda t: t.unsqueeze(-2))


@dataclass(frozen=True)
class CrossAttentionSource:
    """Encoder output for a decoder: hidden states (B, S, D) and their tokens' attributes."""

    hidden_states: Tensor
    token_info: TokenInfo

    def select(self, sequences: Tensor) -> "CrossAttentionSource":
        """Return the source of some sequences (N,) int64."""
        return CrossAttentionSource(
            self.hidden_states.index_select(0, sequences), self.token_info.select(sequences)
        )
