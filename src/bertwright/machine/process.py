"""Settings of this process: its memory allocator, its threads, its device."""

import ctypes
import os
import platform
import sys
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bertwright.machine.cache import recall
from bertwright.machine.cores import num_cores
from bertwright.machine.description import processor_name

if TYPE_CHECKING:
    import torch

_IMPORTED = time.monotonic()

THREADS_FILE = "threads.json"

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Names of glibc's malloc.h."""

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""The environment variable by which PyTorch asks for huge pages."""

SPINS = 3_000
"""How often an idle OpenMP thread looks for work before it sleeps, some 30 microseconds. The
default is a hundred times as many, during which it keeps a core from other programs: beside them a
small model took ten times as long. On a quiet machine the number makes no difference."""

WRAPPED_PRODUCTS = 64
"""Shapes for which PyTorch keeps the oneDNN primitive of a product. The default of 1,024 takes
gigabytes where every batch has another shape, and is no faster."""


@cache
def tune_process() -> None:
    """Keep freed memory instead of returning it to the system, and let idle threads sleep soon; to
    be called before PyTorch is imported.

    By default glibc returns every large block, and the next step faults its pages in anew: a small
    encoder spends half of a float32 step on that. Where the C library is another one, or
    ``BERTWRIGHT_ALLOCATOR=system`` is set, the allocator stays as it is.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
    if (threads := fewer_threads()) is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    if os.environ.get("BERTWRIGHT_ALLOCATOR") == "system":
        return
    os.environ.setdefault(HUGE_PAGES, "1")
    if (library := _glibc()) is not None:
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def fewer_threads() -> int | None:
    """Return the number of threads to compute with where PyTorch would take more: what a container
    allows, and no more than multiply faster than fewer, as measured before on this machine."""
    measured = recall(THREADS_FILE).get(threads_key())
    cores = num_cores()
    threads = min(measured, cores) if isinstance(measured, int) and measured > 0 else cores
    return threads if threads < (os.cpu_count() or 1) else None


def threads_key() -> str:
    """Return the name under which the number of threads is remembered."""
    return f"{processor_name()}, {num_cores()} cores, torch {metadata.version('torch')}"


def allocator() -> str:
    """Return a description of the memory allocator of this process."""
    if os.environ.get("BERTWRIGHT_ALLOCATOR") == "system":
        return "the system's, untuned (BERTWRIGHT_ALLOCATOR=system)"
    if _glibc() is None:
        return "the system's: only glibc's is tuned"
    preloaded = os.environ.get("LD_PRELOAD")
    tuned = "freed memory is kept" if tune_process.cache_info().currsize else "untuned"
    return f"glibc{'' if not preloaded else f' beside {preloaded}'}, {tuned}, {_huge_pages()}"


def _huge_pages() -> str:
    return "huge pages" if os.environ.get(HUGE_PAGES) == "1" else "no huge pages"


def give_memory_back() -> None:
    """Return freed memory that lies between used blocks to the system: batches of many shapes leave
    ever more of it. With another C library than glibc nothing happens."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library, None where it is not glibc."""
    linux = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    return ctypes.CDLL("libc.so.6") if linux else None


def usual_device() -> "torch.device":
    """Return the device that this process computes on: the card, or the processor where there is
    none, for which fewer primitives are kept then.

    A card multiplies float32 as float32: its short form would show in the third digit of an LSTM.
    And for products that are to be the same every time it wants a workspace, before the first. That
    it gathers the weights of an LSTM at each call is nothing that its user can change.
    """
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("LRU_CACHE_CAPACITY", str(WRAPPED_PRODUCTS))
        return torch.device("cpu")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.allow_tf32 = False
    warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
    return torch.device("cuda", torch.cuda.current_device())


@contextmanager
def one_thread() -> Generator[None]:
    """Compute with one thread: on a busy machine two threads of a small model, which wait for each
    other, took thirty times as long."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def seconds_since_start() -> float:
    """Return how long ago this process began, in seconds; since this module was imported where the
    system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED


def synchronise(kind: str) -> None:
    """Wait until a device of that kind has finished its work."""
    if kind == "cuda":
        import torch

        torch.cuda.synchronize()
