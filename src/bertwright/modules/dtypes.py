"""Dtypes of intermediate results."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return x in float32, or unchanged if it is more precise."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
