"""Settings of PyTorch's compiler and of the C++ compiler that it calls.

Instruction set and tuning are explicit. With ``-march=native`` a compiler older than the processor
falls back to generic tuning, and then GCC 12 miscompiles the transposition of bf16 tiles. The bug
is in its SLP vectoriser, which Inductor's vectorised code does not need.
"""

import getpass
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bertwright.core.messages import first_line
from bertwright.runtime.device import cpu_description, has_instruction_set

if TYPE_CHECKING:
    import torch

NO_SLP_VECTORIZE = "-fno-tree-slp-vectorize"

ARCHITECTURE_FLAGS = {
    "AVX512": "x86-64-v4 -mtune=icelake-server",
    "AVX2": "x86-64-v3 -mtune=haswell",
    "DEFAULT": "x86-64 -mtune=generic",
}
"""Instruction set and tuning by PyTorch's CPU capability (levels of the x86-64 ABI)."""

EXTENSION_FLAGS = {"avx512_bf16": "-mavx512bf16", "avx512_vnni": "-mavx512vnni"}
"""Compiler flags for instruction sets beyond level v4, by their names in ``/proc/cpuinfo``."""


@cache
def configure_compiler() -> None:
    """Configure PyTorch's compiler; call this before compiling anything.

    Dropout masks are recomputed for the backward pass, which is cheaper than storing them. Trial
    compilations for instruction sets are skipped, as they take eight seconds. The recompile limits
    are raised: each kind of step is a graph, and PyTorch stops compiling silently at a limit.
    """
    import torch._dynamo.config as dynamo
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    dynamo.recompile_limit, dynamo.accumulated_recompile_limit = 64, 1024
    functorch.ban_recompute_used_far_apart = False
    inductor.cpp.vec_isa_ok = True
    inductor.cpp.march = march_flags()


def march_flags() -> str | None:
    """Return the value of ``-march=``; None (PyTorch's default) on processors other than x86.

    ``TORCHINDUCTOR_CPP_MARCH`` overrides it.
    """
    import torch

    if (override := os.environ.get("TORCHINDUCTOR_CPP_MARCH")) is not None:
        return override
    if platform.machine().lower() not in ("x86_64", "amd64") or sys.platform != "linux":
        return None
    capability = torch.backends.cpu.get_cpu_capability()
    level = "AVX512" if capability.startswith(("AVX512", "AMX")) else capability
    flags = [ARCHITECTURE_FLAGS.get(level, ARCHITECTURE_FLAGS["DEFAULT"])]
    if level == "AVX512":
        flags += [flag for name, flag in EXTENSION_FLAGS.items() if has_instruction_set(name)]
    return " ".join([*flags, NO_SLP_VECTORIZE])


def cpp_compiler() -> Path | None:
    """Return the C++ compiler that PyTorch calls; None if it is not on the path."""
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    path = shutil.which(name.split()[0]) if name.strip() else None
    return None if path is None else Path(path)


def compilation_obstacle() -> str | None:
    """Return the reason why code cannot be compiled for the CPU; None if no obstacle is known.

    Compiling needs a C++ compiler and a cache folder that is writable and allows execution.
    PyTorch's compiler is not imported here, as importing it fails if the folder is unwritable.
    """
    if cpp_compiler() is None:
        return f"{compiler_version()}: install g++, or set CXX to another compiler"
    folder = _inductor_cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        is_executable = not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
    except OSError as error:
        return f"{error}: set TORCHINDUCTOR_CACHE_DIR to another folder"
    if not is_executable:
        return f"{folder} is mounted noexec: set TORCHINDUCTOR_CACHE_DIR to another folder"
    return None


def _inductor_cache_folder() -> Path:
    """Return the folder of PyTorch's compiled code."""
    if folder := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(folder)
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a user without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return Path(tempfile.gettempdir()) / f"torchinductor_{name}"


@cache
def compiler_version() -> str:
    """Return the C++ compiler's version line, such as ``g++ (Debian 12.2.0-14) 12.2.0``."""
    compiler = cpp_compiler()
    if compiler is None:
        return f"no C++ compiler ({os.environ.get('CXX', 'g++')} is not on the path)"
    try:
        output = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{compiler}, which does not run"
    return output.stdout.partition("\n")[0].strip() or f"{compiler}, which prints no version"


@cache
def toolchain() -> str:
    """Return a description of everything except the source that compiled code depends on.

    It names the processor, the instruction set, the flags, the C++ compiler and PyTorch.
    """
    import torch

    compiler = cpp_compiler()
    parts = [cpu_description(), str(march_flags()), compiler_version(), torch.__version__]
    if compiler is not None:
        # A wrapper around a compiler prints the compiler's version.
        stat = compiler.stat()
        parts += [str(compiler), str(stat.st_size), str(stat.st_mtime_ns)]
    return ", ".join(parts)


def toolchain_hash(*parts: str) -> str:
    """Return a short hash of the toolchain and ``parts``."""
    return hashlib.sha256("\n".join([toolchain(), *parts]).encode()).hexdigest()[:16]


class CompilationError(Exception):
    """An exception for code that cannot be compiled or that computes a wrong result."""


def compilation_failure(error: BaseException) -> str:
    """Return the reason why a step is not compiled, as a sentence without a full stop."""
    if isinstance(error, CompilationError):
        return str(error)
    return f"the step cannot be compiled: {first_line(error)}"


def is_compiler_error(error: BaseException) -> bool:
    """Return whether an error comes from the compiler, not from the compiled code."""
    modules = ("torch._inductor", "torch._dynamo", "torch._functorch")
    return isinstance(error, CompilationError) or type(error).__module__.startswith(modules)


def mark_batch_dynamic(tensor: "torch.Tensor") -> None:
    """Mark the batch dimension as dynamic, so one graph serves any batch size."""
    from torch._dynamo.decorators import maybe_mark_dynamic

    maybe_mark_dynamic(tensor, 0)
