"""Checks of tensors for NaN and infinity, in one pass without copies."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bertwright.core.errors import UserError


def require_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise UserError if a tensor of a file holds NaN or infinity."""
    for name, tensor in tensors.items():
        if not is_finite(tensor):
            raise UserError(
                f"{path}: {name} holds NaN or infinity: training diverged, or the file is "
                f"damaged; use an earlier checkpoint, or copy the file again"
            )


def require_finite_outputs(outputs: Tensor) -> Tensor:
    """Return a model's outputs; UserError if they hold NaN or infinity.

    Finite weights can still overflow.
    """
    if not is_finite(outputs):
        raise UserError(
            "the model returns NaN or infinity: its weights are damaged, or its training diverged"
        )
    return outputs


def is_finite(tensor: Tensor) -> bool:
    """Return whether all elements of a tensor are finite.

    Checking the minimum and maximum is much faster than ``isfinite`` on the whole tensor.
    """
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    wide = tensor if tensor.itemsize > 1 else tensor.float()
    return bool(torch.isfinite(torch.stack(torch.aminmax(wide))).all())
