"""Steps of pre-training per second, against Transformers and against the machine's own limit.

Rounds: every contestant makes steps for about two seconds, one after the other, again and again;
ratios are taken within a round, and the median round is reported.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.bench.loading import seconds_per_batch
from bertwright.bench.turns import Contestant, in_turns
from bertwright.bench.workload import VOCABULARY_SIZE, Workload
from bertwright.extras import require
from bertwright.machine.process import HUGE_PAGES, usual_device
from bertwright.machine.speed import matrix_peak, usual_precision
from bertwright.model.counting import arithmetic

OURS = ("bertwright.bench.ours", {})
PEERS = {
    "default": ("bertwright.bench.peers", {"best": False}),
    "best": ("bertwright.bench.peers", {"best": True}),
}

COLUMNS = {
    "size": "BERT",
    "tokens_per_second": "tokens/s",
    "milliseconds": "ms a step",
    "peak_share": "share of matrix peak",
    "against_default": "times Transformers, float32 eager",
    "against_best": "times Transformers at its best",
    "first_step_cold_seconds": "first step, cold, s",
    "first_step_warm_seconds": "warm, s",
    "loading_share": "share of loading",
    "batch_tokens": "tokens a step",
    "length": "length",
}
"""What a document shows, by key."""

Say = Callable[[str], None]


def compare(
    workloads: Sequence[Workload], rounds: int, alone: bool, data: Path | None, say: Say
) -> list[dict[str, Any]]:
    """One row of figures per workload; ``alone`` leaves the peers out, ``data`` is a data folder
    whose loading is timed too.

    Errors: UserError for a size that does not exist, MissingExtra where there are no peers.
    """
    for workload in workloads:
        workload.recipe()
    if not alone:
        require("transformers", "huggingface")
    device = usual_device().type
    rows: list[dict[str, Any]] = []
    for workload in workloads:
        row = _compare(workload, rounds, {} if alone else PEERS, device, say)
        if data is not None:
            seconds = seconds_per_batch(workload, data, device)
            row["loading_share"] = seconds / (seconds + row["milliseconds"] / 1e3)
        rows.append(row)
    return rows


def _compare(
    workload: Workload,
    rounds: int,
    peers: Mapping[str, tuple[str, dict[str, Any]]],
    device: str,
    say: Say,
) -> dict[str, Any]:
    with ExitStack() as open_contestants:
        # Of its own, so that the first start finds nothing compiled and the second one everything.
        cache = open_contestants.enter_context(tempfile.TemporaryDirectory())

        def enter(module: str, settings: Mapping[str, Any]) -> Contestant:
            given = {**settings, "device": device, "workload": asdict(workload)}
            return Contestant(module, given, _environment(cache))

        say(f"{workload.size}: first step, cold")
        with enter(*OURS) as ours:
            cold = ours.seconds_per_step(1)
        contestants: dict[str, Contestant] = {}
        first: dict[str, float] = {}
        for name, settings in {"ours": OURS, **peers}.items():
            say(f"{workload.size}: first steps of {name}")
            contestants[name] = open_contestants.enter_context(enter(*settings))
            first[name] = contestants[name].seconds_per_step(1)
        laps, peaks = _laps(contestants, rounds, device, say)
    tokens = workload.num_rows * workload.length
    operations = tokens * arithmetic(workload.recipe(), 0, VOCABULARY_SIZE).training
    seconds, peak = median(laps["ours"]), median(peaks)
    return {
        "size": workload.size,
        "tokens_per_second": tokens / seconds,
        "peak_share": operations / seconds / peak,
        **{f"against_{name}": _ratio(laps, name) for name in PEERS},
        "milliseconds": 1e3 * seconds,
        "fastest_milliseconds": 1e3 * min(laps["ours"]),
        "slowest_milliseconds": 1e3 * max(laps["ours"]),
        "first_step_cold_seconds": cold,
        "first_step_warm_seconds": first["ours"],
        "best_first_step_cold_seconds": first.get("best"),
        "peak_gflops": peak / 1e9,
        "batch_tokens": tokens,
        "length": workload.length,
        "rounds": rounds,
    }


def _environment(cache: str) -> dict[str, str]:
    """This process's environment, with a cache of compiled code and an allocator left as it is."""
    kept = {name: value for name, value in os.environ.items() if name != HUGE_PAGES}
    return {**kept, "TORCHINDUCTOR_CACHE_DIR": cache}


def _laps(
    contestants: Mapping[str, Contestant], rounds: int, device: str, say: Say
) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds per step of everyone in every round, and the matrix peak in every round."""
    laps: dict[str, list[float]] = {name: [] for name in contestants}
    peaks: list[float] = []
    for turns in in_turns(contestants, rounds, say):
        for name, seconds in turns.items():
            laps[name].append(seconds)
        peaks.append(matrix_peak(usual_precision(device), device))
        say(f"peak {peaks[-1] / 1e9:.0f} GFLOP/s")
    return laps, peaks


def _ratio(laps: Mapping[str, Sequence[float]], name: str) -> float | None:
    """How many times longer a step of that contestant takes; None when it was left out."""
    if name not in laps:
        return None
    return median(theirs / ours for theirs, ours in zip(laps[name], laps["ours"], strict=True))
