"""The largest logit of every token over the positions of a text, without keeping the logits.

For hidden states H of a text and an output table W, the result is max_l (H W^T)[l, v]: one row of
the vocabulary for each text instead of one for each position. Only the position of each maximum is
kept for the backward pass, so a step needs memory for (B, V) and never for (B, L, V).
"""

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 32_000_000
"""Number of logits in memory at once."""


def max_logits(hidden_states: Tensor, table: Tensor, is_read: Tensor) -> Tensor:
    """Return the largest logit of every token over the positions read, (B, V).

    hidden_states: (B, L, D); table: (V, D); is_read: (B, L) bool, True somewhere in each row.
    """
    return _MaxLogitsFunction.apply(hidden_states, table, is_read)  # type: ignore[no-untyped-call]


def _chunks(hidden_states: Tensor, table: Tensor) -> list[slice]:
    """Return slices of the texts whose logits fit in ``CHUNK_ELEMENTS``."""
    num_texts, length = hidden_states.shape[:2]
    size = max(1, CHUNK_ELEMENTS // max(length * len(table), 1))
    return [slice(start, start + size) for start in range(0, num_texts, size)]


class _MaxLogitsFunction(torch.autograd.Function):
    """The maximum over positions, with gradients at the positions of the maxima alone."""

    @staticmethod
    def forward(ctx: Any, hidden_states: Tensor, table: Tensor, is_read: Tensor) -> Tensor:
        shape = len(hidden_states), len(table)
        maxima = hidden_states.new_empty(shape)
        positions = torch.empty(shape, dtype=torch.int64, device=hidden_states.device)
        needs_positions = any(ctx.needs_input_grad)
        for texts in _chunks(hidden_states, table):
            logits = hidden_states[texts] @ table.T
            logits.masked_fill_(~is_read[texts, :, None], -torch.inf)
            if needs_positions:
                torch.max(logits, 1, out=(maxima[texts], positions[texts]))
            else:
                torch.amax(logits, 1, out=maxima[texts])
        ctx.save_for_backward(hidden_states, table, positions)
        return maxima

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        (gradient,) = gradients
        hidden_states, table, positions = ctx.saved_tensors
        hidden_gradient = torch.zeros_like(hidden_states)
        table_gradient = torch.zeros_like(table)
        # Most tokens have a weight of zero, and so no gradient.
        for text, row in enumerate(gradient):
            tokens = row.nonzero().squeeze(1)
            scale, read = row[tokens, None], positions[text, tokens]
            hidden_gradient[text].index_add_(0, read, scale * table[tokens])
            table_gradient.index_add_(0, tokens, scale * hidden_states[text, read])
        return hidden_gradient, table_gradient, None
