"""The machine in words: processor, instruction sets, memory, versions."""

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from bertwright.machine.cores import num_cores

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
