"""Pre-training steps per second, against Transformers and the peak of the machine.

In every round each side runs steps for about two seconds; ratios are taken within a round, and the
median round is reported.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pretraining.workload import VOCAB_SIZE, Workload
from benchmarks.rounds import interleave
from bertwright.core.optional_dependencies import require_library
from bertwright.data.shards.dataset import Dataset
from bertwright.models.costs import flops_per_token
from bertwright.models.model import DeviceBatch
from bertwright.runtime.matmul_throughput import default_precision, measure_matmul_peak
from bertwright.runtime.process import HUGE_PAGES_VARIABLE, default_device
from bertwright.timing.interleaved import TimedProcess
from bertwright.training.clock import Progress
from bertwright.training.pretraining_batches import PretrainingBatches

BERTWRIGHT = ("benchmarks.pretraining.bertwright_worker", {})
PEERS = {
    "default": ("benchmarks.pretraining.transformers_worker", {"best": False}),
    "best": ("benchmarks.pretraining.transformers_worker", {"best": True}),
}

COLUMNS = {
    "size": "BERT",
    "tokens_per_second": "tokens/s",
    "milliseconds": "ms per step",
    "peak_fraction": "fraction of matrix peak",
    "against_default": "speed-up over Transformers, float32 eager",
    "against_best": "speed-up over Transformers at its fastest",
    "first_step_cold_seconds": "first step, cold, s",
    "first_step_warm_seconds": "warm, s",
    "loading_fraction": "fraction of loading",
    "batch_tokens": "tokens per step",
    "length": "length",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]


def compare(
    workloads: Sequence[Workload],
    num_rounds: int,
    without_peers: bool,
    data_folder: Path | None,
    log: Log,
) -> list[dict[str, Any]]:
    """Return a row per workload; with ``data_folder``, with the time of loading its batches.

    Errors: UserError for an unknown size, MissingExtra without Transformers.
    """
    for workload in workloads:
        workload.recipe()
    if not without_peers:
        require_library("transformers", "huggingface")
    device = default_device().type
    rows: list[dict[str, Any]] = []
    for workload in workloads:
        row = _compare(workload, num_rounds, {} if without_peers else PEERS, device, log)
        if data_folder is not None:
            seconds = seconds_per_batch(workload, data_folder, device)
            row["loading_fraction"] = seconds / (seconds + row["milliseconds"] / 1e3)
        rows.append(row)
    return rows


def _compare(
    workload: Workload,
    num_rounds: int,
    peers: Mapping[str, tuple[str, dict[str, Any]]],
    device: str,
    log: Log,
) -> dict[str, Any]:
    with ExitStack() as stack:
        # A new cache: the first process compiles everything, the second one nothing.
        cache = stack.enter_context(tempfile.TemporaryDirectory())

        def enter(module: str, settings: Mapping[str, Any]) -> TimedProcess:
            options = {**settings, "device": device, "workload": asdict(workload)}
            return TimedProcess(module, options, _environment(cache))

        log(f"{workload.size}: first step, cold")
        with enter(*BERTWRIGHT) as ours:
            cold = ours.seconds_per_step(1)
        processes: dict[str, TimedProcess] = {}
        first: dict[str, float] = {}
        for name, settings in {"ours": BERTWRIGHT, **peers}.items():
            log(f"{workload.size}: first steps of {name}")
            processes[name] = stack.enter_context(enter(*settings))
            first[name] = processes[name].seconds_per_step(1)
        times, peaks = _time_rounds(processes, num_rounds, device, log)
    tokens = workload.batch_size * workload.sequence_length
    flops = tokens * flops_per_token(workload.recipe(), 0, VOCAB_SIZE).training
    seconds, peak = median(times["ours"]), median(peaks)
    return {
        "size": workload.size,
        "tokens_per_second": tokens / seconds,
        "peak_fraction": flops / seconds / peak,
        **{f"against_{name}": _speedup(times, name) for name in PEERS},
        "milliseconds": 1e3 * seconds,
        "fastest_milliseconds": 1e3 * min(times["ours"]),
        "slowest_milliseconds": 1e3 * max(times["ours"]),
        "first_step_cold_seconds": cold,
        "first_step_warm_seconds": first["ours"],
        "best_first_step_cold_seconds": first.get("best"),
        "peak_gflops": peak / 1e9,
        "batch_tokens": tokens,
        "length": workload.sequence_length,
        "rounds": num_rounds,
    }


def _environment(cache: str) -> dict[str, str]:
    """Return the environment with a compilation cache and the default allocator."""
    kept = {name: value for name, value in os.environ.items() if name != HUGE_PAGES_VARIABLE}
    return {**kept, "TORCHINDUCTOR_CACHE_DIR": cache}


def _time_rounds(
    processes: Mapping[str, TimedProcess], num_rounds: int, device: str, log: Log
) -> tuple[dict[str, list[float]], list[float]]:
    """Return the seconds per step of every process and the matrix peak, by round."""
    times: dict[str, list[float]] = {name: [] for name in processes}
    peaks: list[float] = []
    for round_seconds in interleave(processes, num_rounds, log):
        for name, seconds in round_seconds.items():
            times[name].append(seconds)
        peaks.append(measure_matmul_peak(default_precision(device), device))
        log(f"peak {peaks[-1] / 1e9:.0f} GFLOP/s")
    return times, peaks


def _speedup(times: Mapping[str, Sequence[float]], peer: str) -> float | None:
    """Return the speed-up over a peer, or None without it."""
    if peer not in times:
        return None
    return median(theirs / ours for theirs, ours in zip(times[peer], times["ours"], strict=True))


NUM_BATCHES = 30


def seconds_per_batch(workload: Workload, data_folder: Path, device: str) -> float:
    """Return the median seconds to load a batch of a workload from a data folder."""
    recipe = workload.recipe()
    batches = PretrainingBatches(recipe, Dataset.open(data_folder))
    seconds: list[float] = []
    for step in range(NUM_BATCHES):
        progress = Progress(step, fraction=0.0, num_sequences=step * workload.batch_size)
        start = time.perf_counter()
        for batch in batches(progress).micro_batches:
            DeviceBatch(batch, device)
        seconds.append(time.perf_counter() - start)
    return median(seconds)
