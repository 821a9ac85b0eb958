"""Rows of a table, with a gradient that sums repeated rows in float32.

The plain definition is ``table[index]``. Its stock backward sums the many gradients of a frequent
piece in the dtype of the table, which in bfloat16 loses most of them, and builds a second dense
table beside the one of a tied decoder.
"""

from typing import Any

import torch
from torch import Tensor, nn


def table(num_rows: int, width: int) -> nn.Embedding:
    """A table whose rows are yet to be drawn or filled in.

    By itself the module would draw them, for which on the meta device PyTorch imports its compiler:
    that is more than a second whenever a model is loaded.
    """
    return nn.Embedding(num_rows, width, _weight=torch.empty(num_rows, width))


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``: table (V, D), index (...) int64, result (..., D)."""
    if not torch.is_grad_enabled() or not table.requires_grad:
        return torch.nn.functional.embedding(index, table)
    result: Tensor = _Lookup.apply(table, index)  # type: ignore[no-untyped-call]
    return result


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.table = table
        return torch.nn.functional.embedding(index, table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        (index,) = ctx.saved_tensors
        table: Tensor = ctx.table
        rows, place = torch.unique(index, return_inverse=True)
        flat = gradients[0].reshape(-1, table.shape[1]).float()
        sums = flat.new_zeros(len(rows), table.shape[1])
        sums.index_add_(0, place.reshape(-1), flat)
        if table.is_leaf and table.grad is not None:
            table.grad.index_add_(0, rows, sums.to(table.dtype))
            return None, None
        dense = torch.zeros_like(table)
        return dense.index_add_(0, rows, sums.to(table.dtype)), None
