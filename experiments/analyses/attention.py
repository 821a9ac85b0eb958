"""Heads with fixed attention, in any model with attention weights."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor

from bertwright.analysis.core.model import AnalysedModel

AttentionPointer = Literal["opening", "end", "self", "previous", "next", "uniform"]

PointersByLayer = Mapping[int, Sequence[AttentionPointer]]
"""The target of each head of a layer."""

_UNIFORM: Sequence[AttentionPointer] = ("uniform",) * 4

UNIFORM_HEADS: PointersByLayer = {0: _UNIFORM, 1: _UNIFORM}
"""Uniform heads for the small model."""


@contextmanager
def plant_attention(model: AnalysedModel, heads: PointersByLayer) -> Generator[None]:
    """Replace the attention of all heads of these layers while the context is open.

    A query without the previous or next position attends to itself.
    """
    with ExitStack() as stack:
        for layer, pointers in heads.items():
            name = f"blocks.{layer}.attention.weights"
            stack.enter_context(
                model.encoder.replace(
                    name,
                    lambda weights, layer_pointers=pointers: pointer_weights(
                        weights, layer_pointers
                    ),
                )
            )
        yield


def pointer_weights(weights: Tensor, pointers: Sequence[AttentionPointer]) -> Tensor:
    """Return weights (B, H, L, L) with the same allowed keys for each pointer."""
    allowed = weights > 0
    heads = [_pointer_weights(allowed[:, head], pointer) for head, pointer in enumerate(pointers)]
    return torch.stack(heads, 1).to(weights.dtype)


def _pointer_weights(allowed: Tensor, pointer: AttentionPointer) -> Tensor:
    """Return the weights of one head for allowed keys (B, L, L) bool."""
    if pointer == "uniform":
        return allowed / allowed.sum(-1, keepdim=True)
    itself = torch.eye(allowed.shape[-1], dtype=torch.bool, device=allowed.device) & allowed
    last = allowed.sum(-1, keepdim=True) == torch.arange(
        1, allowed.shape[-1] + 1, device=allowed.device
    )
    targets = {
        "opening": allowed & (torch.arange(allowed.shape[-1], device=allowed.device) == 0),
        "end": allowed & last,
        "self": itself,
        "previous": allowed & itself.roll(-1, -1) & ~_wrapped_positions(itself, -1),
        "next": allowed & itself.roll(1, -1) & ~_wrapped_positions(itself, 1),
    }[pointer]
    return torch.where(targets.any(-1, keepdim=True), targets, itself).double()


def _wrapped_positions(diagonal: Tensor, offset: int) -> Tensor:
    """Return where a shifted diagonal wraps around."""
    wrapped = torch.zeros_like(diagonal)
    wrapped[..., 0 if offset > 0 else -1] = True
    return wrapped
