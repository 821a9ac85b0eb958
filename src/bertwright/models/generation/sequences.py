"""Growing batches of sequences and their next-token logits."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bertwright.encoder.decoder import Decoder
from bertwright.models.model import Model
from bertwright.models.text_batches import pad_sequences
from bertwright.modules.attention.cache import KeyValueCache
from bertwright.modules.attention.mask import Visibility
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo

TokenIds = Sequence[Sequence[int]]


class GrowingSequences(Protocol):
    """A batch of sequences that grow by one token at a time."""

    def logits(self) -> Tensor:
        """Return next-token logits (B, V)."""
        ...

    def append(self, token_ids: Sequence[int]) -> None:
        """Append one token to every sequence, (B,)."""
        ...

    def select(self, indices: Sequence[int]) -> None:
        """Keep the sequences with these indices, in this order; indices may repeat."""
        ...


class CachedSequences:
    """Left-padded sequences with cached keys and values, so each token is encoded once.

    ``max_lookback`` is the number of earlier positions that a token attends to; None for all.
    """

    def __init__(
        self,
        model: Model,
        sequences: TokenIds,
        visibility: Visibility,
        pad_id: int,
        max_lookback: int | None,
        language_id: int | None,
    ) -> None:
        self._model, self._visibility, self._language_id = model, visibility, language_id
        self._cache = KeyValueCache(max_lookback)
        width = max(map(len, sequences))
        device = model.embedding_table.device
        num_padding = torch.tensor([width - len(ids) for ids in sequences], device=device)[:, None]
        index = torch.arange(width, device=device)[None]
        padded = [[pad_id] * (width - len(ids)) + list(ids) for ids in sequences]
        self._lengths = width - num_padding
        self._width = width
        token_info = TokenInfo(
            index,
            (index - num_padding).clamp(min=0),
            document_ids=torch.where(index < num_padding, -1, 0),
        )
        self._hidden_states = self._encode(torch.tensor(padded, device=device), token_info)

    def logits(self) -> Tensor:
        return self._model.logits(self._hidden_states)

    def append(self, token_ids: Sequence[int]) -> None:
        new_ids = torch.tensor(token_ids, device=self._lengths.device)[:, None]
        index = torch.full_like(new_ids[:1], self._width)
        token_info = TokenInfo(index, self._lengths, document_ids=torch.zeros_like(new_ids))
        self._hidden_states = self._encode(new_ids, token_info)
        self._lengths = self._lengths + 1
        self._width += 1

    def select(self, indices: Sequence[int]) -> None:
        kept = torch.tensor(indices, device=self._lengths.device)
        self._lengths, self._hidden_states = self._lengths[kept], self._hidden_states[kept]
        self._cache.select(kept)

    def _encode(self, token_ids: Tensor, token_info: TokenInfo) -> Tensor:
        """Encode tokens (B, L); return the hidden states (B, D) of the last ones."""
        info = token_info.with_language(token_ids, self._language_id)
        return self._model.encoder(token_ids, info, self._visibility, memory=self._cache)[:, -1]


class QueryStreamSequences(CachedSequences):
    """Cached sequences of a permutation model, which predicts from a query token.

    Each call appends the query token after the new tokens; the cache does not keep it.
    """

    _rank = 0

    def _encode(self, token_ids: Tensor, token_info: TokenInfo) -> Tensor:
        def with_query(values: Tensor | None, increment: int) -> Tensor:
            assert values is not None
            return torch.cat((values, values[:, -1:] + increment), dim=1)

        order = torch.full_like(token_ids, self._rank)
        self._rank += 1
        is_query = with_query(torch.zeros_like(token_ids), 1).bool()
        query_info = TokenInfo(
            with_query(token_info.index, 1),
            with_query(token_info.position_ids, 1),
            document_ids=with_query(token_info.document_ids, 0),
            factorisation_order=with_query(order, 1),
            is_query_stream=is_query,
        )
        return super()._encode(with_query(token_ids, 0).masked_fill(is_query, 0), query_info)


class DecoderSequences(CachedSequences):
    """Sequences of a decoder, where sources are encoded once and each token is decoded once.

    ``start_ids`` (B,) are the decoder start tokens, ``first_positions`` (B,) their positions.
    """

    def __init__(
        self,
        model: Model,
        sources: TokenIds,
        start_ids: Sequence[int],
        first_positions: Sequence[int],
        pad_id: int,
        source_language_id: int | None,
        target_language_id: int | None,
    ) -> None:
        self._model, self._language_id, self._cache = model, target_language_id, KeyValueCache()
        device, width = model.embedding_table.device, max(map(len, sources))
        batch = pad_sequences(sources, None, np.arange(len(sources)), width, pad_id, device)
        token_info = batch.token_info.with_language(batch.token_ids, source_language_id)
        self._source = CrossAttentionSource(model(batch.token_ids, token_info), token_info)
        self._lengths = torch.tensor(first_positions, device=device)[:, None]
        self._width = 0
        self.append(start_ids)

    def select(self, indices: Sequence[int]) -> None:
        super().select(indices)
        self._source = self._source.select(torch.tensor(indices, device=self._lengths.device))

    def _encode(self, token_ids: Tensor, token_info: TokenInfo) -> Tensor:
        assert isinstance(self._model.decoder, Decoder), "only a stack of blocks has a cache"
        info = token_info.with_language(token_ids, self._language_id)
        return self._model.decoder(token_ids, info, memory=self._cache, source=self._source)[:, -1]


class UncachedDecoderSequences(DecoderSequences):
    """Sequences of a decoder without a cache, which are decoded from the beginning each time."""

    _token_ids: Tensor | None = None

    def append(self, token_ids: Sequence[int]) -> None:
        assert self._model.decoder is not None, "a denoising recipe has a decoder"
        new_ids = torch.tensor(token_ids, device=self._lengths.device)[:, None]
        previous = new_ids[:, :0] if self._token_ids is None else self._token_ids
        self._token_ids = torch.cat((previous, new_ids), dim=1)
        self._hidden_states = self._model.decoder.decode(self._token_ids, self._source)[:, -1]

    def select(self, indices: Sequence[int]) -> None:
        super().select(indices)
        assert self._token_ids is not None
        self._token_ids = self._token_ids[torch.tensor(indices, device=self._lengths.device)]


class UncachedSequences:
    """Right-padded sequences that are encoded from the beginning for every new token."""

    def __init__(
        self,
        model: Model,
        sequences: TokenIds,
        visibility: Visibility,
        pad_id: int,
        language_id: int | None,
    ) -> None:
        self._model, self._visibility, self._pad_id = model, visibility, pad_id
        self._language_id = language_id
        self._sequences = [list(ids) for ids in sequences]

    def logits(self) -> Tensor:
        indices, length = np.arange(len(self._sequences)), max(map(len, self._sequences))
        device = self._model.embedding_table.device
        batch = pad_sequences(self._sequences, None, indices, length, self._pad_id, device)
        token_info = batch.token_info.with_language(batch.token_ids, self._language_id)
        hidden_states = self._model(batch.token_ids, token_info, self._visibility)
        last = torch.tensor(batch.lengths, device=device) - 1
        return self._model.logits(hidden_states[torch.arange(len(last), device=device), last])

    def append(self, token_ids: Sequence[int]) -> None:
        for ids, token_id in zip(self._sequences, token_ids, strict=True):
            ids.append(token_id)

    def select(self, indices: Sequence[int]) -> None:
        self._sequences = [list(self._sequences[index]) for index in indices]
