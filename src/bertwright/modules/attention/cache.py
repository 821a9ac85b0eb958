"""State that is kept for later tokens: key-value cache, memory, recurrent state."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertwright.modules.token_tensors import TokenInfo


@dataclass(frozen=True)
class RecurrentCarry:
    """A recurrent state that is carried from one batch of sequences to the next.

    ``state`` is the state after the previous sequences, (B, 1, S); None at the start. ``store``
    saves the new state, without gradient.
    """

    state: Tensor | None
    store: Callable[[Tensor], None]


class LayerKeyValues:
    """A cache of the keys (before rotation) and values of one attention layer, (B, H, M, d)."""

    def __init__(self, max_length: int | None) -> None:
        self._max_length = max_length
        self._key_value: tuple[Tensor, Tensor] | None = None
        self._cross_key_value: tuple[Tensor, Tensor] | None = None
        self.num_query_stream = 0

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values; return all, (B, H, M + L, d) each."""
        if self._key_value is not None:
            key = torch.cat((self._key_value[0], key), dim=2)
            value = torch.cat((self._key_value[1], value), dim=2)
        cached = _kept_slice(key.shape[2], self.num_query_stream, self._max_length)
        self._key_value = key[:, :, cached], value[:, :, cached]
        return key, value

    def cross_key_values(
        self, project: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the cross-attention source, (B, H, S, d) each.

        ``project`` computes them; it is called only once.
        """
        if self._cross_key_value is None:
            self._cross_key_value = project()
        return self._cross_key_value

    def select(self, sequences: Tensor) -> None:
        """Keep only the sequences with these indices, (N,) int64."""
        self._key_value = _select_sequences(self._key_value, sequences)
        self._cross_key_value = _select_sequences(self._cross_key_value, sequences)


Past = Tensor | RecurrentCarry | LayerKeyValues
"""Earlier tokens of a block: its inputs (B, M, D), a recurrent state, or keys and values."""


class KeyValueCache:
    """A key-value cache for causal text that is read in parts.

    The parts give the same result as one pass. The cache can replace a ``Memory``. Unlike a memory,
    it keeps keys and values with unchanged positions, which works with every position encoding. All
    passes must set the same token attributes. ``max_length`` is the number of tokens to keep, for a
    limited window; None keeps all.
    """

    def __init__(self, max_length: int | None = None) -> None:
        self._max_length = max_length
        self._layers: dict[int, LayerKeyValues] = {}
        self._token_info: TokenInfo | None = None

    def extend_token_info(self, token_info: TokenInfo) -> TokenInfo:
        """Add new tokens to the cache; return the attributes of cached and new tokens, the keys."""
        keys = token_info
        if self._token_info is not None:
            keys = _concatenate_token_info(self._token_info, keys)
        num_query_stream = token_info.index.shape[1] - num_content_tokens(token_info)
        kept = _kept_slice(keys.index.shape[1], num_query_stream, self._max_length)
        self._token_info = keys.map(lambda values: values[:, kept])
        return keys

    def layer_past(self, block: int, x: Tensor, token_info: TokenInfo) -> LayerKeyValues:
        """Return the cache of a block, prepared for tokens with these attributes."""
        layer = self._layers.setdefault(block, LayerKeyValues(self._max_length))
        layer.num_query_stream = x.shape[1] - num_content_tokens(token_info)
        return layer

    def select(self, sequences: Tensor) -> None:
        """Keep only the sequences with these indices, (N,) int64."""
        for layer in self._layers.values():
            layer.select(sequences)
        if self._token_info is not None:
            self._token_info = self._token_info.select(sequences)


def _select_sequences(
    key_value: tuple[Tensor, Tensor] | None, sequences: Tensor
) -> tuple[Tensor, Tensor] | None:
    if key_value is None:
        return None
    return key_value[0].index_select(0, sequences), key_value[1].index_select(0, sequences)


def _kept_slice(length: int, num_query_stream: int, max_length: int | None) -> slice:
    end = length - num_query_stream
    return slice(0 if max_length is None else max(0, end - max_length), end)


def _concatenate_token_info(cached: TokenInfo, new: TokenInfo) -> TokenInfo:
    """Concatenate the token attributes that both have; a single sequence is broadcast."""
    first, second, joined = cached.arrays(), new.arrays(), dict[str, Tensor]()
    for name in first.keys() & second.keys():
        size = max(len(first[name]), len(second[name]))
        joined[name] = torch.cat([t[name].expand(size, -1) for t in (first, second)], dim=1)
    return TokenInfo(**joined)


class Memory:
    """The block inputs of the last M tokens before each sequence, without gradient.

    ``hidden_states`` holds (B, M, D) by block index; ``document_ids`` (B, M) int64 is -1 where
    there was no text. Only the first ``num_remembered`` tokens of the sequences enter the next
    memory (``reuse_len`` of Yang et al. 2019); None for all. Source: Dai et al. 2019.

    With ``follows_text`` the memory is the state after the text that follows each sequence, for
    recurrent blocks that read backward; then M is 1.
    """

    def __init__(
        self,
        hidden_states: dict[int, Tensor],
        document_ids: Tensor,
        follows_text: bool = False,
        num_remembered: int | None = None,
    ) -> None:
        self.hidden_states, self.document_ids = hidden_states, document_ids
        self.follows_text, self.num_remembered = follows_text, num_remembered
        self._next: dict[int, Tensor] = {}

    @staticmethod
    def empty(
        length: int,
        token_ids: Tensor,
        follows_text: bool = False,
        num_remembered: int | None = None,
    ) -> "Memory":
        """Return an empty memory of ``length`` tokens for token ids (B, L)."""
        documents = token_ids.new_full((len(token_ids), length), -1)
        return Memory({}, documents, follows_text, num_remembered)

    def layer_past(self, block: int, x: Tensor, token_info: TokenInfo) -> Tensor:
        """Return the memory (B, M, D) of a block; keep its input x (B, L, D) for the next one."""
        past = self.hidden_states.get(block)
        if past is None:
            past = x.new_zeros(len(x), self.document_ids.shape[1], x.shape[2])
        content = x.detach()[:, : self._num_new(token_info)]
        self._next[block] = torch.cat((past, content), dim=1)[:, -self.document_ids.shape[1] :]
        return past

    def recurrent_carry(self, block: int) -> RecurrentCarry:
        """Return the state that a recurrent block continues from, with a function to store it."""

        def store(state: Tensor) -> None:
            self._next[block] = state.detach()

        return RecurrentCarry(self.hidden_states.get(block), store)

    def next_memory(self, token_info: TokenInfo) -> "Memory":
        """Return the memory after sequences with these attributes.

        It covers their last document only, which the next sequences may continue as document 0. A
        memory that follows the text covers document 0, if the sequences begin within it.
        """
        documents = self._document_ids(token_info)[:, : self._num_new(token_info)]
        if self.follows_text:
            return Memory(self._next, torch.where(documents[:, :1] == 0, 0, -1), True)
        last = documents.amax(1, keepdim=True)
        memory_documents = torch.cat((self.document_ids.where(last < 1, -1), documents), dim=1)
        memory_documents = memory_documents[:, -self.document_ids.shape[1] :]
        memory_documents = torch.where(memory_documents == last.clamp(min=0), 0, -1)
        return Memory(self._next, memory_documents, num_remembered=self.num_remembered)

    def _num_new(self, token_info: TokenInfo) -> int:
        """Return how many tokens of the sequences enter the next memory."""
        num_content = num_content_tokens(token_info)
        return num_content if self.num_remembered is None else min(num_content, self.num_remembered)

    def extend_token_info(self, token_info: TokenInfo) -> TokenInfo:
        """Return the attributes of the keys: the memory, then the sequences.

        The memory precedes all tokens in position and factorisation order, and has segment 0 (as in
        the released code of XLNet). In sequences read backward its positions follow the text. A
        memory that follows the text belongs to the last document.
        """
        length, documents = self.document_ids.shape[1], self._document_ids(token_info)
        index = position_ids = torch.arange(-length, 0, device=self.document_ids.device)[None]
        memory_documents = self.document_ids
        if self.follows_text:
            index = position_ids = index + length + num_content_tokens(token_info)
            memory_documents = memory_documents.where(
                memory_documents < 0, documents.amax(1, keepdim=True)
            )
        if token_info.is_backward is not None:
            after_text = num_content_tokens(token_info) - 1 - index
            position_ids = torch.where(token_info.is_backward[:, :1], after_text, index)

        memory_info = TokenInfo(
            index,
            position_ids,
            segment_ids=torch.zeros_like(index),
            document_ids=memory_documents,
            factorisation_order=torch.full_like(index, -1),
            is_query_stream=torch.zeros_like(index, dtype=torch.bool),
        )
        token_info = replace(token_info, document_ids=documents)
        return _concatenate_token_info(memory_info, token_info)

    def _document_ids(self, token_info: TokenInfo) -> Tensor:
        if token_info.document_ids is not None:
            return token_info.document_ids
        return torch.zeros_like(token_info.index).expand(len(self.document_ids), -1)


def num_content_tokens(token_info: TokenInfo) -> int:
    """Return the number of content tokens of a sequence, which precede the query tokens."""
    length = token_info.index.shape[1]
    is_query = token_info.is_query_stream
    return length if is_query is None else length - int(is_query[0].sum())
