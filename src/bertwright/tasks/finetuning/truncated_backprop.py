"""Backpropagation through time for classification (Howard and Ruder 2018, section 3.3).

A long document is read in chunks. The recurrent state is carried from chunk to chunk without
gradient, and the head pools over all chunks, but gradients flow only through the last ones. The
hidden states are those of a single pass over the document.
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Settings
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.models.layer_selection import LayerSelection
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.mask import scan_directions
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import TokenInfo


class TruncatedBackpropConfig(Settings):
    """Settings of truncated backpropagation: the chunk ``length``, and the trained ``chunks``.

    Only the last ``chunks`` chunks of a document have gradients.
    """

    length: int = Field(default=70, ge=1, le=1 << 20)
    chunks: int = Field(default=20, ge=1, le=1 << 20)

    def check(self, encoder: EncoderConfig) -> str | None:
        """Return why an encoder cannot be trained in chunks; None if it can."""
        if encoder.mixer.is_recurrent and len(scan_directions(encoder.visibility)) == 1:
            return None
        return (
            "truncated_backprop carries the state of a recurrent encoder with one direction: leave "
            "it out"
        )

    def hidden_states(
        self,
        encoder: Encoder,
        layers: LayerSelection,
        token_ids: Tensor,
        token_info: TokenInfo,
        dropout_rng: DropoutRng | None = None,
    ) -> Tensor:
        """Return the hidden states (B, L, W) of ``layers`` for token_ids (B, L), padded at the end.

        They are 0 at positions where every sequence is padded.
        """
        assert token_info.document_ids is not None, "task batches mark real positions"
        lengths = (token_info.document_ids >= 0).sum(1)
        is_backward = encoder.scan_directions == ("backward",)
        memory = Memory.empty(1, token_ids, follows_text=is_backward)
        starts = range(0, int(lengths.max()), self.length)
        states: list[Tensor] = []
        for start in reversed(starts) if is_backward else starts:
            part = slice(start, min(start + self.length, int(lengths.max())))
            info = token_info.map(lambda values, part=part: values[:, part])
            info = replace(info, index=info.index - start)
            is_trained = self._is_trained(start, lengths, is_backward)
            with torch.set_grad_enabled(torch.is_grad_enabled() and bool(is_trained.any())):
                chunk = layers.hidden_states(
                    encoder, token_ids[:, part], info, dropout_rng, memory=memory
                )
            states.append(torch.where(is_trained[:, None, None], chunk, chunk.detach()))
            memory = memory.next_memory(info)
        joined = torch.cat(states[::-1] if is_backward else states, dim=1)
        return nn.functional.pad(joined, (0, 0, 0, token_ids.shape[1] - joined.shape[1]))

    def _is_trained(self, start: int, lengths: Tensor, is_backward: bool) -> Tensor:
        """Return which sequences (B,) of these lengths have gradients in the chunk at ``start``."""
        chunk = start // self.length
        later_chunks = (lengths - 1) // self.length - chunk
        return (torch.full_like(lengths, chunk) if is_backward else later_chunks) < self.chunks
