"""Deterministic algorithms on a GPU."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def deterministic_algorithms(device: torch.device) -> Generator[None]:
    """Use only deterministic algorithms within the block; on a CPU all are.

    Errors: RuntimeError within the block if PyTorch has no deterministic algorithm.
    """
    if device.type == "cpu":
        yield
        return
    previous_mode = torch.get_deterministic_debug_mode()
    memory: Any = torch.utils.deterministic
    previous_fill = memory.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")
    # Filling uninitialised memory takes time, and no code here reads it.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(previous_mode)
        memory.fill_uninitialized_memory = previous_fill
