"""Check that a model fits into memory before allocating it."""

import os
from contextlib import suppress
from pathlib import Path

from torch import nn

from bertwright.core.errors import UserError

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def require_memory(module: nn.Module, name: str) -> None:
    """Raise UserError if a module, which may be on meta, exceeds the memory of this machine."""
    num_bytes = sum(4 * parameter.numel() for parameter in module.parameters())
    if num_bytes > (available := memory_bytes()):
        raise UserError(
            f"{name} has {num_bytes / 4:,.0f} parameters, which take {num_bytes / 2**30:,.1f} GB, "
            f"and this machine has {available / 2**30:,.1f} GB: choose fewer layers, a smaller "
            f"width or a smaller vocabulary"
        )


def memory_bytes() -> int:
    """Return the memory of this machine, or of the container that the process runs in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        return min(total, int(_CONTAINER_LIMIT.read_text()))
    return total
