"""Check that a model fits into memory before it is allocated."""

from torch import nn

from bertwright.core.errors import UserError
from bertwright.core.hardware import memory_bytes


def require_memory(module: nn.Module, name: str) -> None:
    """Raise UserError if a module is larger than this machine's memory; it may be on ``meta``."""
    num_bytes = sum(4 * parameter.numel() for parameter in module.parameters())
    if num_bytes > (available := memory_bytes()):
        raise UserError(
            f"{name} has {num_bytes / 4:,.0f} parameters, which take {num_bytes / 2**30:,.1f} GB, "
            f"and this machine has {available / 2**30:,.1f} GB: choose fewer layers, a smaller "
            f"width or a smaller vocabulary"
        )
