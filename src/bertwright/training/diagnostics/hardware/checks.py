"""Checks of this machine: ``bertwright doctor --machine``."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from bertwright.core.cache_folder import cache_folder
from bertwright.core.hardware import num_cores
from bertwright.core.operating_system import load_average
from bertwright.modules.inference.int8_linear import Int8Linear, int8_is_fast, int8_sums_saturate
from bertwright.runtime.compiler import (
    compilation_obstacle,
    compiler_version,
    cpp_compiler,
    march_flags,
)
from bertwright.runtime.device import cpu_description, instruction_sets, package_versions
from bertwright.runtime.matmul_throughput import (
    default_precision,
    matmul_throughput,
    measure_matmul_peak,
)
from bertwright.runtime.process import allocator_description
from bertwright.training.diagnostics.hardware.compiled_block import RECIPES_BY_POSITIONS

DEADLINE_SECONDS = 50.0
"""Time limit for all compiled steps together; an idle machine takes half a minute."""

MIN_COSINE = 0.999
"""Minimum cosine similarity between int8 and float32 products."""

LIBRARIES = ("bertwright", "torch", "numpy", "tokenizers", "safetensors", "onnxruntime")


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check of the machine."""

    name: str
    ok: bool
    detail: str


def machine_checks() -> Iterator[MachineCheck]:
    """Yield the checks of this machine; measurements come first, while nothing else runs."""
    sets = " ".join(instruction_sets()) or "instruction sets unknown"
    yield MachineCheck("processor", True, f"{cpu_description()}: {sets}")
    yield MachineCheck("cores", True, _cores())
    yield MachineCheck("allocator", True, allocator_description())
    yield _matrix_products()
    yield MachineCheck("matrix peaks", True, _matrix_peaks())
    yield _int8_kernels()
    yield _cache_folder()
    versions = package_versions(*LIBRARIES).items()
    yield MachineCheck("versions", True, ", ".join(f"{n} {v}" for n, v in versions))
    obstacle = compilation_obstacle()
    yield _compiler(obstacle)
    if obstacle is None:
        yield from compiled_step_checks()


def _cores() -> str:
    load = load_average()
    description = "load unknown" if load is None else f"load {load:.1f}"
    return f"{num_cores()} cores, {torch.get_num_threads()} threads, {description}"


def _matrix_products() -> MachineCheck:
    throughput = matmul_throughput()
    detail = f"{throughput.describe()}; models compute in {default_precision()}"
    return MachineCheck("products", throughput.float32 > 0, detail)


def _matrix_peaks() -> str:
    peaks = {
        precision: measure_matmul_peak(precision) for precision in ("float32", default_precision())
    }
    return ", ".join(f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in peaks.items())


@torch.no_grad()
def _int8_kernels() -> MachineCheck:
    """Compare the int8 kernels with float32."""
    if not int8_is_fast():
        return MachineCheck("int8 kernels", True, "none for this processor: int8 is unavailable")
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(384, 1536)
    linear.weight.copy_(torch.randn(1536, 384, generator=generator) / 384**0.5)
    x = torch.randn(256, 384, generator=generator)
    expected, result = linear(x), Int8Linear(linear)(x)
    cosine = float(torch.cosine_similarity(expected.flatten(), result.flatten(), 0))
    weights = "64, since sums saturate" if int8_sums_saturate() else "127"
    detail = f"cosine {cosine:.5f} to float32, largest weight {weights}"
    return MachineCheck("int8 kernels", cosine >= MIN_COSINE, detail)


def _cache_folder() -> MachineCheck:
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return MachineCheck(
            "cache folder", False, f"{error}: measurements are not cached; set XDG_CACHE_HOME"
        )
    return MachineCheck("cache folder", True, str(folder))


def _compiler(obstacle: str | None) -> MachineCheck:
    if obstacle is not None:
        return MachineCheck("compiler", False, f"{obstacle}; until then nothing is compiled")
    flags = march_flags()
    options = "flags of PyTorch" if flags is None else f"-march={flags}"
    return MachineCheck("compiler", True, f"{compiler_version()} ({cpp_compiler()}), {options}")


def compiled_step_checks() -> Iterator[MachineCheck]:
    """Yield the checks of compiled steps, one process per kind of positions, without a cache."""
    end = time.monotonic() + DEADLINE_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        processes = {
            positions: subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bertwright.training.diagnostics.hardware.compiled_block",
                    positions,
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / positions),
                    "TORCHINDUCTOR_COMPILE_THREADS": "1",
                },
            )
            for positions in RECIPES_BY_POSITIONS
        }
        for positions, process in processes.items():
            yield from _read_checks(positions, process, end)


def _read_checks(
    positions: str, process: "subprocess.Popen[str]", end: float
) -> Iterator[MachineCheck]:
    try:
        output, errors = process.communicate(timeout=max(0.1, end - time.monotonic()))
        reason = (errors.strip().splitlines() or ["no output"])[-1][:300]
        if process.returncode < 0:
            reason = f"compiling or running compiled code was ended by signal {-process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        reason = "not finished in time: repeat when the machine is idle"
    results = {entry.pop("precision"): entry for entry in map(json.loads, output.splitlines())}
    for precision in ("float32", "bf16"):
        name = f"compiled step, {positions} positions, {precision}"
        result = results.get(precision, {"failure": reason})
        if result.get("agrees"):
            yield MachineCheck(name, True, "loss and gradients agree with the uncompiled step")
            continue
        failure = result.get("failure")
        if failure is None:
            failure = f"{compiler_version()} miscompiles it: {result['difference']}"
        yield MachineCheck(name, False, f"{failure}; training continues uncompiled")
