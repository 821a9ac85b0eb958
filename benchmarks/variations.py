"""Training steps and embedding in two environments: another checkout, or other compiler flags.

Every variation runs the same workload in its own process with its own compilation cache, in
interleaved rounds.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.embedding.compare import checkpoint_folder, load_lines, sample_sentences
from benchmarks.pretraining.workload import Workload
from benchmarks.rounds import interleave
from bertwright.core.errors import UserError
from bertwright.runtime.process import default_device
from bertwright.timing.interleaved import TimedProcess

EMBEDDING_WORKER = Path(__file__).parent / "embedding" / "worker.py"
NUM_SENTENCES = 500
"""Sentences per embedding step."""

COLUMNS = {
    "workload": "workload",
    "variation": "variation",
    "milliseconds": "ms per step",
    "speed": "speed-up over the first",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class Variation:
    """Environment variables to run the program with."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def checkout_variations(other_checkout: Path) -> list[Variation]:
    """Return another checkout, then this one."""
    return [
        Variation("other checkout", checkout_environment(other_checkout)),
        Variation("this checkout"),
    ]


def checkout_environment(folder: Path) -> dict[str, str]:
    """Return the environment in which Python imports another checkout.

    Errors: UserError for a folder that is not a checkout.
    """
    source = folder.resolve() / "src"
    if not (source / "bertwright").is_dir():
        raise UserError(f"{folder} is not a checkout of bertwright: it has no src/bertwright")
    return {"PYTHONPATH": str(source)}


def compiler_flag_variations() -> list[Variation]:
    """Return PyTorch's default compiler flags, then ours."""
    return [
        Variation("-march=native", {"TORCHINDUCTOR_CPP_MARCH": "native"}),
        Variation("bertwright"),
    ]


def compare(
    variations: Sequence[Variation], sizes: Sequence[str], embed: bool, num_rounds: int, log: Log
) -> list[dict[str, Any]]:
    """Return a row for every workload and variation; speeds are medians of ratios within a round.

    The workloads are a training step of BERT in each of ``sizes`` and, with ``embed``, sentences
    embedded by MiniLM.
    """
    device = default_device().type
    rows: list[dict[str, Any]] = []
    for size in sizes:
        settings = {"device": device, "workload": asdict(Workload(size))}
        steps = _time_interleaved(
            variations, "benchmarks.pretraining.bertwright_worker", settings, num_rounds, log
        )
        rows += _table_rows(f"pretrain {size}", steps)
    if embed:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(sample_sentences(load_lines(None), NUM_SENTENCES), file)
            file.flush()
            settings = {"model": str(checkpoint_folder()), "sentences": file.name}
            steps = _time_interleaved(variations, EMBEDDING_WORKER, settings, num_rounds, log)
        rows += _table_rows(f"embed {NUM_SENTENCES} sentences", steps)
    return rows


def _time_interleaved(
    variations: Sequence[Variation],
    program: str | Path,
    settings: Mapping[str, Any],
    num_rounds: int,
    log: Log,
) -> dict[str, list[float]]:
    """Return the seconds of a step in every round, by variation."""
    seconds: dict[str, list[float]] = {variation.name: [] for variation in variations}
    with ExitStack() as stack:
        processes: dict[str, TimedProcess] = {}
        for variation in variations:
            caches = stack.enter_context(tempfile.TemporaryDirectory())
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": caches, **variation.environment}
            process = TimedProcess(program, settings, environment)
            processes[variation.name] = stack.enter_context(process)
            # The first step compiles: it does not say how many steps fill a round.
            processes[variation.name].seconds_per_step(1)
        for round_seconds in interleave(processes, num_rounds, log):
            for name, step_seconds in round_seconds.items():
                seconds[name].append(step_seconds)
    return seconds


def _table_rows(workload: str, seconds: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    first = next(iter(seconds.values()))
    return [
        {
            "workload": workload,
            "variation": name,
            "milliseconds": 1e3 * median(times),
            "speed": median(a / b for a, b in zip(first, times, strict=True)),
        }
        for name, times in seconds.items()
    ]
