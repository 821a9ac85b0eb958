"""Whether weights are numbers: one pass over each tensor, without copies."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bertwright.errors import UserError


def require_finite(tensors: Mapping[str, Tensor], origin: Path) -> None:
    """Refuse tensors that hold NaN or infinity: UserError that names their file and the tensor."""
    for name, tensor in tensors.items():
        if not is_finite(tensor):
            raise UserError(
                f"{origin}: {name} holds NaN or infinity: a training has failed, or the file is "
                f"damaged; take an earlier checkpoint, or copy it again"
            )


def require_numbers(outputs: Tensor) -> Tensor:
    """Return the outputs of a model; UserError where they hold NaN or infinity: finite weights may
    be so large that they overflow."""
    if not is_finite(outputs):
        raise UserError(
            "the model gives NaN or infinity: its weights are damaged, or its training has failed"
        )
    return outputs


def is_finite(tensor: Tensor) -> bool:
    """Return whether every number of a tensor is finite.

    The least and the greatest number show it, many times as fast as ``isfinite``.
    """
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    wide = tensor if tensor.itemsize > 1 else tensor.float()
    return bool(torch.isfinite(torch.stack(torch.aminmax(wide))).all())
