"""Memory allocator, threads and device of this process."""

import ctypes
import os
import platform
import sys
import time
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bertwright.core.cache_folder import read_cache
from bertwright.core.hardware import num_cores
from bertwright.runtime.device import cpu_name

if TYPE_CHECKING:
    import torch

_IMPORT_TIME = time.monotonic()

THREADS_FILE = "threads.json"

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""M_TRIM_THRESHOLD and M_MMAP_MAX of glibc's malloc.h."""

HUGE_PAGES_VARIABLE = "THP_MEM_ALLOC_ENABLE"
"""Environment variable that makes PyTorch request huge pages."""

OPENMP_SPIN_COUNT = 3_000
"""Number of times that an idle OpenMP thread spins before it sleeps, about 30 microseconds.

The default is a hundred times as many, which keeps the cores busy: a small model on a busy machine
took ten times as long. On an idle machine the number makes no difference.
"""

ONEDNN_CACHE_CAPACITY = 64
"""Number of shapes for which PyTorch caches oneDNN primitives.

The default of 1,024 takes gigabytes if every batch has a different shape, and is not faster.
"""


@cache
def configure_process() -> None:
    """Configure the allocator, the threads and PyTorch of this process, before it computes.

    Commands, worker processes, ``pretrain`` and ``finetune`` call this; nothing else changes the
    process. Settings of the allocator and the threads have an effect only before PyTorch is
    imported.

    By default glibc returns large blocks to the system, and page faults then take half of a small
    encoder's float32 step; so freed memory is kept. The allocator is left unchanged with
    ``BERTWRIGHT_ALLOCATOR=system``, and with C libraries other than glibc.

    On a CPU fewer oneDNN primitives are cached. On a GPU, cuBLAS gets the workspace that
    deterministic products need; cuDNN's TF32 is disabled, which changes the third digit of an LSTM;
    and a warning about LSTM weights, which users cannot act on, is silenced.
    """
    variables = {
        "GOMP_SPINCOUNT": str(OPENMP_SPIN_COUNT),
        "LRU_CACHE_CAPACITY": str(ONEDNN_CACHE_CAPACITY),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    if (threads := recommended_num_threads()) is not None:
        variables["OMP_NUM_THREADS"] = str(threads)
    if os.environ.get("BERTWRIGHT_ALLOCATOR") != "system":
        variables[HUGE_PAGES_VARIABLE] = "1"
        if (library := _glibc()) is not None:
            library.mallopt(_MMAP_MAX, 0)
            library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    for name, value in variables.items():
        os.environ.setdefault(name, value)

    import torch

    torch.backends.cudnn.allow_tf32 = False
    warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")


def recommended_num_threads() -> int | None:
    """Return the recommended number of threads; None for PyTorch's default.

    It is limited by the container's quota and by earlier measurements on this machine.
    """
    measured = read_cache(THREADS_FILE).get(threads_cache_key())
    cores = num_cores()
    threads = min(measured, cores) if isinstance(measured, int) and measured > 0 else cores
    return threads if threads < (os.cpu_count() or 1) else None


def threads_cache_key() -> str:
    """Return the cache key of the measured number of threads."""
    return f"{cpu_name()}, {num_cores()} cores, torch {metadata.version('torch')}"


def allocator_description() -> str:
    """Return a description of the memory allocator of this process."""
    if os.environ.get("BERTWRIGHT_ALLOCATOR") == "system":
        return "the system's, untuned (BERTWRIGHT_ALLOCATOR=system)"
    if _glibc() is None:
        return "the system's: only glibc's is tuned"
    preloaded = os.environ.get("LD_PRELOAD")
    library = f"glibc with {preloaded}" if preloaded else "glibc"
    tuned = "freed memory is kept" if configure_process.cache_info().currsize else "untuned"
    pages = "huge pages" if os.environ.get(HUGE_PAGES_VARIABLE) == "1" else "no huge pages"
    return f"{library}, {tuned}, {pages}"


def release_free_memory() -> None:
    """Return freed memory between used blocks to the system (glibc only).

    Batches of many different shapes fragment the heap.
    """
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc; None otherwise."""
    linux = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    return ctypes.CDLL("libc.so.6") if linux else None


def default_device() -> "torch.device":
    """Return the current GPU if there is one, else the CPU."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def process_age_seconds() -> float:
    """Return the age of this process in seconds, or of this module if the process's is unknown."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORT_TIME


def synchronise(device_type: str) -> None:
    """Wait until a device of this type has finished its work."""
    if device_type == "cuda":
        import torch

        torch.cuda.synchronize()
