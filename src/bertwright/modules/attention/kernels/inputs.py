"""The inputs of an attention kernel."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.modules.attention.mask import AttentionMask
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.hooks import HookPoint

WEIGHTS_STREAM = 1
"""Dropout stream of the attention weights within a block."""


@dataclass(frozen=True)
class AttentionInputs:
    """The inputs of one call: queries, keys and values (B, H, L, d), mask and dropout.

    ``score_bias`` is broadcastable to (B, H, L, L); ``scale`` None means 1 / sqrt(d).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: AttentionMask
    dropout_rate: float
    dropout_rng: DropoutRng | None
    hooks: HookPoint | None
    score_bias: Tensor | None = None
    scale: float | None = None
    dropout_stream: int = WEIGHTS_STREAM
    weight_indices: Tensor | None = None
    """Index of each weight in the global batch, int32, if only some tokens are queries."""
    may_compile: bool = False
    """True if kernels may compile a loop, which makes the first call slow."""

    @property
    def score_scale(self) -> float:
        """Return the factor of the query-key products."""
        return self.query.shape[-1] ** -0.5 if self.scale is None else self.scale

    @property
    def is_self_attention(self) -> bool:
        """Return whether there are as many keys as queries, from the same tokens."""
        return self.query.shape[2] == self.key.shape[2]

    @property
    def has_dropout(self) -> bool:
        """Return whether this call applies dropout to attention weights."""
        return self.dropout_rng is not None and self.dropout_rate > 0.0


def mask_to_bias(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a score bias of the mask's shape: 0 for allowed pairs, -inf for masked ones."""
    return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -torch.inf)
