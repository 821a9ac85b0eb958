"""PyTorch's compiler on this machine: its settings, and the C++ compiler behind it.

Code is generated for an instruction set and a tuning that are named here. ``-march=native`` would
leave both to the C++ compiler, and one that is older than the processor then takes its generic
tuning, with which GCC 12 miscompiles the transposition of bf16 tiles (its vectoriser of straight
code, which Inductor's code, written in vectors, does without).
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

from bertwright.machine.description import has_instructions, processor
from bertwright.notices import first_line

if TYPE_CHECKING:
    import torch

NO_STRAIGHT_VECTORS = "-fno-tree-slp-vectorize"

TUNED_FOR = {
    "AVX512": "x86-64-v4 -mtune=icelake-server",
    "AVX2": "x86-64-v3 -mtune=haswell",
    "DEFAULT": "x86-64 -mtune=generic",
}
"""Instruction set and tuning by the capability that PyTorch computes with (x86-64 ABI, levels)."""

EXTENSIONS = {"avx512_bf16": "-mavx512bf16", "avx512_vnni": "-mavx512vnni"}
"""Flags for instruction sets beyond the level v4, by their names in ``/proc/cpuinfo``."""


@cache
def tune_compiler() -> None:
    """Set up PyTorch's compiler; to be called before it is used.

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
    inductor.cpp.march = target_flags()


def target_flags() -> str | None:
    """Return what follows ``-march=`` for the code of this process; None, which leaves the choice
    to PyTorch, on other processors than x86. ``TORCHINDUCTOR_CPP_MARCH`` decides otherwise."""
    import torch

    if (stated := os.environ.get("TORCHINDUCTOR_CPP_MARCH")) is not None:
        return stated
    if platform.machine().lower() not in ("x86_64", "amd64") or sys.platform != "linux":
        return None
    capability = torch.backends.cpu.get_cpu_capability()
    level = "AVX512" if capability.startswith(("AVX512", "AMX")) else capability
    flags = [TUNED_FOR.get(level, TUNED_FOR["DEFAULT"])]
    if level == "AVX512":
        flags += [flag for name, flag in EXTENSIONS.items() if has_instructions(name)]
    return " ".join([*flags, NO_STRAIGHT_VECTORS])


def cpp_compiler() -> Path | None:
    """Return the C++ compiler that PyTorch will call, None where it is not found."""
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    path = shutil.which(name.split()[0]) if name.strip() else None
    return None if path is None else Path(path)


def compilation_obstacle() -> str | None:
    """Return why nothing can be compiled for the processor here, None where nothing is known to
    stand against it: a compiler, and a folder that code can be written to and run from.

    PyTorch's compiler is not imported for it: in an unwritable folder that already fails.
    """
    if cpp_compiler() is None:
        return f"{compiler_version()}: install g++, or name another compiler in CXX"
    folder = _code_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        runs_code = not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
    except OSError as error:
        return f"{error}: name another folder in TORCHINDUCTOR_CACHE_DIR"
    if not runs_code:
        return f"{folder} is mounted noexec: name another folder in TORCHINDUCTOR_CACHE_DIR"
    return None


def _code_folder() -> Path:
    """Return the folder that PyTorch's compiler writes code to."""
    if folder := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(folder)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return Path(tempfile.gettempdir()) / f"torchinductor_{name}"


@cache
def compiler_version() -> str:
    """Return the C++ compiler in words: ``g++ (Debian 12.2.0-14) 12.2.0``."""
    compiler = cpp_compiler()
    if compiler is None:
        return f"no C++ compiler ({os.environ.get('CXX', 'g++')} is not on the path)"
    try:
        answer = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{compiler}, which does not run"
    first_line = answer.stdout.partition("\n")[0].strip()
    return first_line or f"{compiler}, which names no version"


@cache
def toolchain() -> str:
    """Return a text that changes with everything that compiled code depends on beside its source:
    processor, instruction set, flags, C++ compiler, PyTorch."""
    import torch

    compiler = cpp_compiler()
    parts = [processor(), str(target_flags()), compiler_version(), torch.__version__]
    if compiler is not None:
        # A wrapper around a compiler answers with the version of the compiler.
        stat = compiler.stat()
        parts += [str(compiler), str(stat.st_size), str(stat.st_mtime_ns)]
    return ", ".join(parts)


def fingerprint(*parts: str) -> str:
    """Return a short name for the toolchain together with these texts."""
    return hashlib.sha256("\n".join([toolchain(), *parts]).encode()).hexdigest()[:16]


class Uncompilable(Exception):
    """Something cannot be compiled, or computes something else then; the message says why."""


def obstacle_of(error: BaseException) -> str:
    """Return why a step is not compiled, in a sentence without its full stop."""
    if isinstance(error, Uncompilable):
        return str(error)
    return f"the step cannot be compiled: {first_line(error)}"


def raised_by_compiler(error: BaseException) -> bool:
    """Return whether compiling raised an error, which is no fault of what was compiled."""
    modules = ("torch._inductor", "torch._dynamo", "torch._functorch")
    return isinstance(error, Uncompilable) or type(error).__module__.startswith(modules)


def of_any_number(sequences: "torch.Tensor") -> None:
    """Let one compiled graph serve any number of sequences."""
    from torch._dynamo.decorators import maybe_mark_dynamic

    maybe_mark_dynamic(sequences, 0)
