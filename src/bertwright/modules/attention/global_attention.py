"""Attention of global tokens with separate projections (Beltagy et al. 2020, section 3.1)."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from bertwright.modules.attention.kernels.inputs import AttentionInputs
from bertwright.modules.attention.kernels.kernels import attend
from bertwright.modules.attention.positions import HeadShape, RotaryAngles, apply_rotary
from bertwright.modules.context import BlockContext
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.hooks import child_hooks
from bertwright.modules.mixer import split_heads
from bertwright.modules.parameter_roles import ParameterRole

GLOBAL_WEIGHTS_STREAM = 72
"""Dropout stream of the attention weights of global queries within a block."""


class GlobalAttention(nn.Module):
    """A module that recomputes the context of global tokens with separate projections.

    Only global queries use the separate keys and values; other tokens attend to global tokens
    through the usual ones.
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "projection.weight": ParameterRole("matrix", num_parts=3)
    }

    def __init__(self, head_shape: HeadShape, bias: bool, dropout_rate: float) -> None:
        super().__init__()
        self.head_shape, self.dropout_rate, self.has_bias = head_shape, dropout_rate, bias
        self.projection = nn.Linear(head_shape.width, 3 * head_shape.width, bias)

    def forward(self, x: Tensor, attended: Tensor, context: BlockContext) -> Tensor:
        """Return ``attended`` (B, H, L, d) with new values for global tokens; x is (B, L, D)."""
        shared, dropout_rng = context.attention, context.dropout_rng
        global_tokens = shared.mask.global_tokens
        if global_tokens is None:
            return attended
        batch, length, width = x.shape
        heads, head_width = self.head_shape.num_heads, self.head_shape.head_width
        positions = global_tokens.positions.expand(batch, -1)
        query_input = x.gather(1, positions[..., None].expand(-1, -1, width))
        query_weight, key_value_weight = self.projection.weight.split((width, 2 * width))
        query_bias, key_value_bias = (
            self.projection.bias.split((width, 2 * width)) if self.has_bias else (None, None)
        )
        (query,) = split_heads(linear(query_input, query_weight, query_bias), heads, 1)
        key, value = split_heads(linear(x, key_value_weight, key_value_bias), heads, 2)
        if shared.rotary is not None:
            query = apply_rotary(query, _rotary_at(positions, shared.rotary))
            key = apply_rotary(key, shared.rotary)
        score_bias = shared.score_bias
        if score_bias is not None:
            score_bias = score_bias.expand(batch, -1, -1, -1)
            indices = positions[:, None, :, None].expand(
                -1, score_bias.shape[1], -1, score_bias.shape[3]
            )
            score_bias = score_bias.gather(2, indices)
        weight_indices = (
            None if dropout_rng is None else self._weight_indices(positions, length, dropout_rng)
        )
        inputs = AttentionInputs(
            query,
            key,
            value,
            global_tokens.mask,
            self.dropout_rate,
            dropout_rng,
            child_hooks(context.hooks, "global"),
            score_bias,
            dropout_stream=GLOBAL_WEIGHTS_STREAM,
            weight_indices=weight_indices,
        )
        global_attended = attend(inputs, "auto")
        slots = global_tokens.slots.expand(batch, -1)[:, None, :, None]
        by_token = global_attended.gather(2, slots.expand(-1, heads, -1, head_width))
        return torch.where(global_tokens.is_global[:, None, :, None], by_token, attended)

    def _weight_indices(self, positions: Tensor, length: int, dropout_rng: DropoutRng) -> Tensor:
        """Return the index of each weight in the (B, H, L, L) of the global batch, (B, H, G, L)."""
        sequence = (
            torch.arange(len(positions), device=positions.device) + dropout_rng.first_sequence
        )
        lane = sequence[:, None] * self.head_shape.num_heads + torch.arange(
            self.head_shape.num_heads, device=sequence.device
        )
        row_index = (lane[..., None] * length + positions[:, None]) * length
        key = torch.arange(length, dtype=torch.int32, device=sequence.device)
        return row_index.to(torch.int32)[..., None] + key


def _rotary_at(positions: Tensor, rotary: RotaryAngles) -> RotaryAngles:
    """Return the rotary angles (B, 1, G, d) at positions (B or 1, G)."""

    def select(angles: Tensor) -> Tensor:
        angles = angles.expand(positions.shape[0], -1, -1, -1)
        return angles.gather(2, positions[:, None, :, None].expand(-1, -1, -1, angles.shape[3]))

    return select(rotary[0]), select(rotary[1])
