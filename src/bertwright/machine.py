"""The machine: what it is, how fast it multiplies matrices, and how it hands out memory.

Nothing here is needed for a result; it is needed to be fast, and to say how fast.
"""

import ctypes
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bertwright.axes import Precision
from bertwright.files import write_text

if TYPE_CHECKING:
    import torch

_IMPORTED = time.monotonic()

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Names of glibc's malloc.h."""

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""The environment variable by which PyTorch asks for huge pages."""

SPINS = 3_000
"""How often a thread looks for work before it sleeps, some 30 microseconds. OpenMP's threads would
look a hundred times as long, each for another that waits for its core where other programs run: a
small model took ten times as long then, and alone it takes what it took."""

WRAPPED_PRODUCTS = 64
"""Shapes for which PyTorch keeps what it has wrapped around a product of oneDNN. It would keep
1,024, with their memory: gigabytes where every batch has another shape, and nothing is faster."""

_PRODUCTS = {
    "cpu": ((4096, 768, 3072), (2048, 2048, 2048)),
    "cuda": ((16384, 4096, 4096), (8192, 8192, 8192)),
}
"""Sizes (m, k, n) that are large enough to reach the peak and small enough to repeat."""


@cache
def tune_process() -> None:
    """Keep freed memory instead of giving it back to the system, and let threads that wait sleep
    soon; to be called before PyTorch is imported.

    By default glibc returns every large block, and the next step faults its pages in anew: a small
    encoder spends half of a float32 step on that. Where the C library is another one, or
    ``BERTWRIGHT_ALLOCATOR=system`` is set, nothing of this happens.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
    if os.environ.get("BERTWRIGHT_ALLOCATOR") == "system":
        return
    os.environ.setdefault(HUGE_PAGES, "1")
    if (library := _glibc()) is not None:
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def give_memory_back() -> None:
    """Return to the system what was freed and lies between what is in use: batches of many shapes
    leave ever more of it. Where the C library is another one, nothing happens."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, None where it is another one."""
    linux = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    return ctypes.CDLL("libc.so.6") if linux else None


@cache
def tune_compiler() -> None:
    """Settings under which PyTorch's compiler does better by us; to be called before it is used.

    What was dropped is cheaper to hash again than to store for the backward pass. And a first step
    need not begin with trial compilations, eight seconds of them, for what the processor says of
    itself: every compiler that accepts PyTorch's headers knows its instructions. Each kind of step
    is a graph of its own; beyond a limit of them PyTorch would go on without, in silence.
    """
    import torch._dynamo.config as dynamo
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    dynamo.recompile_limit, dynamo.accumulated_recompile_limit = 64, 1024
    functorch.ban_recompute_used_far_apart = False
    inductor.cpp.vec_isa_ok = True


def of_any_number(rows: "torch.Tensor") -> None:
    """Tell the compiler that there may be any number of these, for which one graph will do."""
    from torch._dynamo.decorators import maybe_mark_dynamic

    maybe_mark_dynamic(rows, 0)


def usual_device() -> "torch.device":
    """What this process computes on: the card, or the processor where there is none, for which less
    is kept then.

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


def num_cores() -> int:
    """The cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_thread() -> Generator[None]:
    """On a busy machine threads of small models wait for one another: two took thirty times as long
    as one."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def description() -> str:
    """The machine in words: ``AMD EPYC (AVX2), 2 cores, 23 GB of memory, no GPU``."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return f"{processor()}, {num_cores()} cores, {memory:.0f} GB of memory, {gpu}"


def device_name() -> str:
    """Of the card that this process computes on, or of the processor where there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else processor()


def processor() -> str:
    """Its name, and the widest instructions by which PyTorch computes there, since a name may stand
    for several generations: ``AMD EPYC (AVX2)``."""
    import torch

    name = platform.processor() or platform.machine()
    file = Path("/proc/cpuinfo")
    if file.is_file():
        lines = (line.partition(":") for line in file.read_text().splitlines())
        name = next((told.strip() for key, _, told in lines if key.strip() == "model name"), name)
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def versions(*libraries: str) -> dict[str, str]:
    """The installed versions of Python and of those libraries that are there."""
    found = {"python": platform.python_version()}
    for library in libraries:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found


def multiplies_bfloat16(device: "torch.device | str" = "cpu") -> bool:
    """Whether a device multiplies bfloat16 natively: one that does not is many times as slow in it
    as in float32."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capability: Callable[[], bool] = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return torch.backends.mkldnn.is_available() and bool(capability())


def usual_precision(device: "torch.device | str" = "cpu") -> Precision:
    """bf16 where the device multiplies it natively, else float32."""
    return "bf16" if multiplies_bfloat16(device) else "float32"


def matrix_peak(
    precision: Precision, device: "torch.device | str" = "cpu", seconds: float = 0.5
) -> float:
    """Floating-point operations per second of large matrix products, as measured now.

    The rate that one product in ten exceeds: the best of many is luck, and neighbours on the same
    machine slow most of them down. A device without bfloat16 of its own could convert and multiply
    float32: that is its peak, where one product in emulated bfloat16 would take half a minute.
    """
    import torch

    kind = torch.device(device).type
    in_bfloat16 = precision == "bf16" and multiplies_bfloat16(device)
    dtype = torch.bfloat16 if in_bfloat16 else torch.float32
    rates: list[float] = []
    for m, k, n in _PRODUCTS[kind]:
        left = torch.randn(m, k, device=device, dtype=dtype)
        right = torch.randn(k, n, device=device, dtype=dtype)
        result = torch.empty(m, n, device=device, dtype=dtype)
        end = time.perf_counter() + seconds / len(_PRODUCTS[kind])
        while time.perf_counter() < end:
            began = time.perf_counter()
            torch.mm(left, right, out=result)
            synchronise(kind)
            rates.append(2.0 * m * k * n / (time.perf_counter() - began))
    return sorted(rates)[int(0.9 * len(rates))]


_peaks: dict[str, float] = {}
"""Those that this process has measured."""


def known_matrix_peak(precision: Precision, device: "torch.device | str" = "cpu") -> float:
    """The matrix peak of this machine: the highest of those measured in this and earlier runs.

    Neighbours only make it lower, so one quiet moment is enough: a process measures once. The
    highest is kept in the user's cache folder.
    """
    import torch

    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else processor()
    threads = f", {torch.get_num_threads()} threads" if kind == "cpu" else ""
    measured = f"{name}{threads}, {precision}, torch {torch.__version__}"
    file = cache_folder() / "matrix_peaks.json"
    peaks: dict[str, float] = {}
    with suppress(OSError, ValueError):
        peaks = json.loads(file.read_text(encoding="utf-8"))
    if measured not in _peaks:
        _peaks[measured] = matrix_peak(precision, device)
    now = _peaks[measured]
    if now > peaks.get(measured, 0.0):
        peaks[measured] = now
        with suppress(OSError):
            write_text(file, json.dumps(peaks, indent=1) + "\n")
    return peaks[measured]


def of_the_compiler(error: Exception) -> bool:
    """Whether PyTorch's compiler has raised it, which is no fault of what it was given."""
    return type(error).__module__.startswith(("torch._inductor", "torch._dynamo"))


def cache_folder() -> Path:
    """Where small things are kept between runs: ``$XDG_CACHE_HOME/bertwright``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertwright"


def seconds_since_start() -> float:
    """How long ago this process began, in seconds; since this module was imported where the system
    does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED


def synchronise(kind: str) -> None:
    """Wait until a device of that kind has done what it was asked."""
    if kind == "cuda":
        import torch

        torch.cuda.synchronize()
