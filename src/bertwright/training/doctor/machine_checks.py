"""What this machine is, and whether it computes right: ``bertwright doctor --machine``."""

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

from bertwright.encoder.kernels.eight_bits import EightBitLinear, eight_bits_are_fast, saturates
from bertwright.machine.cache import cache_folder
from bertwright.machine.compiler import (
    compilation_obstacle,
    compiler_version,
    cpp_compiler,
    target_flags,
)
from bertwright.machine.cores import load, num_cores
from bertwright.machine.description import instruction_sets, processor, versions
from bertwright.machine.process import allocator
from bertwright.machine.speed import matrix_peak, product_rates, usual_precision
from bertwright.training.doctor.compiled_block import SYSTEMS

DEADLINE_SECONDS = 50.0
"""For all compiled steps together; on a quiet machine they take half a minute."""

LEAST_COSINE = 0.999
"""Between a product in 8 bits and the same in float32."""

LIBRARIES = ("bertwright", "torch", "numpy", "tokenizers", "safetensors", "onnxruntime")


@dataclass(frozen=True)
class MachineCheck:
    """One thing about the machine, whether it is right, and what there is to know or to do."""

    name: str
    ok: bool
    detail: str


def machine_checks() -> Iterator[MachineCheck]:
    """Yield the checks of this machine, as they end; what measures comes first, while nothing else
    runs."""
    yield MachineCheck("processor", True, _processor())
    yield MachineCheck("cores", True, _cores())
    yield MachineCheck("allocator", True, allocator())
    yield _products()
    yield MachineCheck("matrix peaks", True, _peaks())
    yield _eight_bits()
    yield _cache_folder()
    yield MachineCheck("versions", True, ", ".join(f"{n} {v}" for n, v in _versions().items()))
    obstacle = compilation_obstacle()
    yield _compiler(obstacle)
    if obstacle is None:
        yield from compiled_step_checks()


def _processor() -> str:
    sets = " ".join(instruction_sets()) or "instruction sets unknown"
    return f"{processor()}: {sets}"


def _cores() -> str:
    busy = load()
    runnable = "load unknown" if busy is None else f"load {busy:.1f}"
    return f"{num_cores()} cores, {torch.get_num_threads()} threads, {runnable}"


def _products() -> MachineCheck:
    rates = product_rates()
    detail = f"{rates.described()}; models are trained and read in {usual_precision()}"
    return MachineCheck("products", rates.float32 > 0, detail)


def _peaks() -> str:
    peaks = {precision: matrix_peak(precision) for precision in ("float32", usual_precision())}
    return ", ".join(f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in peaks.items())


@torch.no_grad()
def _eight_bits() -> MachineCheck:
    """Hold the kernels in 8 bits against float32."""
    if not eight_bits_are_fast():
        return MachineCheck("8-bit kernels", True, "none for this processor: int8 is refused")
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(384, 1536)
    linear.weight.copy_(torch.randn(1536, 384, generator=generator) / 384**0.5)
    x = torch.randn(256, 384, generator=generator)
    right, result = linear(x), EightBitLinear(linear)(x)
    cosine = float(torch.cosine_similarity(right.flatten(), result.flatten(), 0))
    weights = "64 steps of weights, since sums saturate" if saturates() else "127 steps of weights"
    detail = f"cosine {cosine:.5f} to float32, {weights}"
    return MachineCheck("8-bit kernels", cosine >= LEAST_COSINE, detail)


def _cache_folder() -> MachineCheck:
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return MachineCheck(
            "cache folder", False, f"{error}: measurements are not kept; set XDG_CACHE_HOME"
        )
    return MachineCheck("cache folder", True, str(folder))


def _versions() -> dict[str, str]:
    return versions(*LIBRARIES)


def _compiler(obstacle: str | None) -> MachineCheck:
    if obstacle is not None:
        return MachineCheck("compiler", False, f"{obstacle}; until then nothing is compiled")
    flags = target_flags()
    code = "flags of PyTorch" if flags is None else f"-march={flags}"
    return MachineCheck("compiler", True, f"{compiler_version()} ({cpp_compiler()}), {code}")


def compiled_step_checks() -> Iterator[MachineCheck]:
    """Compile steps in a process for each kind of positions, anew, and yield their checks."""
    end = time.monotonic() + DEADLINE_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        processes = {
            positions: subprocess.Popen(
                [sys.executable, "-m", "bertwright.training.doctor.compiled_block", positions],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / positions),
                    "TORCHINDUCTOR_COMPILE_THREADS": "1",
                },
            )
            for positions in SYSTEMS
        }
        for positions, process in processes.items():
            yield from _checks_of(positions, process, end)


def _checks_of(
    positions: str, process: "subprocess.Popen[str]", end: float
) -> Iterator[MachineCheck]:
    try:
        answers, errors = process.communicate(timeout=max(0.1, end - time.monotonic()))
        reason = (errors.strip().splitlines() or ["it said nothing"])[-1][:300]
        if process.returncode < 0:
            reason = f"compiling, or compiled code, ended by signal {-process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        answers, _ = process.communicate()
        reason = "not finished in time: look again when the machine is quiet"
    verdicts = {entry.pop("precision"): entry for entry in map(json.loads, answers.splitlines())}
    for precision in ("float32", "bf16"):
        name = f"compiled step, {positions} positions, {precision}"
        verdict = verdicts.get(precision)
        if verdict is None or "failure" in verdict:
            failure = reason if verdict is None else verdict["failure"]
            yield MachineCheck(name, False, f"{failure}; training goes on uncompiled")
        elif verdict["agrees"]:
            yield MachineCheck(name, True, "forward and gradients as uncompiled")
        else:
            detail = f"{compiler_version()} miscompiles it: {verdict['difference']}"
            yield MachineCheck(name, False, f"{detail}; training goes on uncompiled")
