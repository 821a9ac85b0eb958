"""Whether the memory of this machine holds a model: asked before anything is allocated."""

import os
from contextlib import suppress
from pathlib import Path

from torch import nn

from bertwright.errors import UserError

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def require_memory(module: nn.Module, what: str) -> None:
    """Refuse a module, of which only the shapes need to be there, that is larger than the memory of
    this machine: UserError."""
    needed = sum(4 * parameter.numel() for parameter in module.parameters())
    if needed > (available := memory_bytes()):
        raise UserError(
            f"{what} has {needed / 4:,.0f} parameters, which take {needed / 2**30:,.1f} GB, and "
            f"this machine has {available / 2**30:,.1f} GB: choose fewer layers, a smaller width "
            f"or a smaller vocabulary"
        )


def memory_bytes() -> int:
    """Return how much memory this machine has, or the container that the process runs in."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        return min(whole, int(_CONTAINER_LIMIT.read_text()))
    return whole
