"""Descriptions of the hardware, and versions of libraries."""

import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from bertwright.core.hardware import memory_bytes, num_cores

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
"""x86 instruction sets for matrix products, as named in ``/proc/cpuinfo``."""


def hardware_description() -> str:
    """Return a description such as ``AMD EPYC (AVX2), 2 cores, 23 GB of memory, no GPU``."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    memory = memory_bytes() / 1e9
    return f"{cpu_description()}, {num_cores()} cores, {memory:.0f} GB of memory, {gpu}"


def cpu_description() -> str:
    """Return the CPU's name and PyTorch's CPU capability, such as ``AMD EPYC (AVX2)``.

    The name alone may stand for several generations.
    """
    import torch

    return f"{cpu_name()} ({torch.backends.cpu.get_cpu_capability()})"


def cpu_name() -> str:
    """Return the CPU's name, without importing PyTorch."""
    name = platform.processor() or platform.machine()
    return _cpuinfo().get("model name", name)


def instruction_sets() -> list[str]:
    """Return the CPU's instruction sets for matrix products; [] unless on Linux and x86."""
    return [name for name in INSTRUCTION_SETS if has_instruction_set(name)]


def has_instruction_set(name: str) -> bool:
    """Return whether this CPU has an instruction set; False if the system is not Linux."""
    return name in _cpuinfo().get("flags", "").split()


@cache
def _cpuinfo() -> dict[str, str]:
    """Return the first CPU's entries in ``/proc/cpuinfo``; {} if there is no such file."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return {}
    first = file.read_text().partition("\n\n")[0]
    entries = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in entries}


def package_versions(*libraries: str) -> dict[str, str]:
    """Return the versions of Python and of those libraries that are installed."""
    installed = {"python": platform.python_version()}
    for library in libraries:
        try:
            installed[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return installed
