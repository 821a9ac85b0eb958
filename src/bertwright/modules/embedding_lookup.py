"""Embedding lookup, with a gradient that sums repeated tokens in float32.

The result is ``table[index]``. PyTorch's backward pass for it sums the many gradients of a frequent
token in the dtype of the table, which in bfloat16 loses most of them. It also allocates a second
dense gradient besides the tied decoder's.
"""

from typing import Any

import torch
from torch import Tensor, nn


def empty_embedding(num_embeddings: int, embedding_dim: int) -> nn.Embedding:
    """Return an embedding table with uninitialised weights.

    ``nn.Embedding`` would initialise them, and on the meta device PyTorch imports its compiler for
    that, which takes over a second for every model that is loaded.
    """
    return nn.Embedding.from_pretrained(torch.empty(num_embeddings, embedding_dim), freeze=False)


def set_in_place_gradient(parameter: nn.Parameter, gradient: Tensor | None) -> None:
    """Set the gradient that embedding kernels add to in place.

    Without it they return a dense gradient, as usual. None restores that.
    """
    parameter.grad = gradient
    parameter.has_in_place_gradient = gradient is not None  # type: ignore[attr-defined]


def in_place_gradient(parameter: Tensor) -> Tensor | None:
    """Return the gradient that a kernel must add to; None if it must return a gradient."""
    return parameter.grad if getattr(parameter, "has_in_place_gradient", False) else None


def embedding_lookup(table: Tensor, index: Tensor) -> Tensor:
    """Return ``table[index]``, (..., D), for a table (V, D) and an index (...) int64."""
    if not torch.is_grad_enabled() or not table.requires_grad:
        return torch.nn.functional.embedding(index, table)
    result: Tensor = _EmbeddingLookupFunction.apply(table, index)  # type: ignore[no-untyped-call]
    return result


class _EmbeddingLookupFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.table = table
        return torch.nn.functional.embedding(index, table)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, None]:
        (index,) = ctx.saved_tensors
        table: Tensor = ctx.table
        rows, inverse = torch.unique(index, return_inverse=True)
        gradients = output_gradients[0].reshape(-1, table.shape[1]).float()
        sums = gradients.new_zeros(len(rows), table.shape[1])
        sums.index_add_(0, inverse.reshape(-1), gradients)
        if (gradient := in_place_gradient(table)) is not None:
            gradient.index_add_(0, rows, sums.to(table.dtype))
            return None, None
        dense = torch.zeros_like(table)
        return dense.index_add_(0, rows, sums.to(table.dtype)), None
