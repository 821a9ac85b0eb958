"""The same bits every time, whichever thread of a card comes first."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def repeatable(device: torch.device) -> Generator[None]:
    """Within it a card takes only algorithms whose sums have one order; a processor has no others.

    Errors: RuntimeError, within it, where PyTorch has no such algorithm.
    """
    if device.type == "cpu":
        yield
        return
    before = torch.get_deterministic_debug_mode()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")
    # Nothing here reads memory that nobody has written, and filling it takes time.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
        memory.fill_uninitialized_memory = fills
