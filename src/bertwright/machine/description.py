"""The machine in words: processor, instruction sets, cores, load, memory, versions."""

import math
import os
import platform
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

INSTRUCTION_SETS = (
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512dq",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
)
"""Names in ``/proc/cpuinfo`` of the instruction sets of x86 that matter to matrix products."""


def num_cores() -> int:
    """Return the number of cores that this process may use: by its affinity, and by the quota of
    its container."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the cores' worth of time that the control group of this process may use, None where
    there is no limit."""
    with suppress(OSError, ValueError):  # version 2
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):  # version 1
        quota = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((root / "cpu" / "cpu.cfs_period_us").read_text())
        return None if quota <= 0 else quota / period
    return None


def load() -> float | None:
    """Return the mean number of runnable processes of the last minute, None where the system does
    not say."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def is_quiet() -> bool:
    """Return whether other programs leave this process its cores, as far as the system says."""
    runnable = load()
    return runnable is None or runnable < 0.75 * num_cores()


def description() -> str:
    """Return the machine in words: ``AMD EPYC (AVX2), 2 cores, 23 GB of memory, no GPU``."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return f"{processor()}, {num_cores()} cores, {memory:.0f} GB of memory, {gpu}"


def device_name() -> str:
    """Return the name of the card that this process computes on, or of the processor."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else processor()


def processor() -> str:
    """Return the name of the processor and the widest instructions by which PyTorch computes there,
    since a name may stand for several generations: ``AMD EPYC (AVX2)``."""
    import torch

    return f"{processor_name()} ({torch.backends.cpu.get_cpu_capability()})"


def processor_name() -> str:
    """Return the name of the processor alone, for which PyTorch is not imported."""
    name = platform.processor() or platform.machine()
    return _cpuinfo().get("model name", name)


def instruction_sets() -> list[str]:
    """Return the instruction sets of x86 for matrix products that Linux lists; [] elsewhere."""
    return [name for name in INSTRUCTION_SETS if has_instructions(name)]


def has_instructions(name: str) -> bool:
    """Return whether Linux lists an instruction set of this processor by that name."""
    return name in _cpuinfo().get("flags", "").split()


@cache
def _cpuinfo() -> dict[str, str]:
    """Return the entries of the first processor in ``/proc/cpuinfo``, {} where there is none."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return {}
    first = file.read_text().partition("\n\n")[0]
    entries = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in entries}


def versions(*libraries: str) -> dict[str, str]:
    """Return the installed versions of Python and of those libraries that are there."""
    installed = {"python": platform.python_version()}
    for library in libraries:
        try:
            installed[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return installed
