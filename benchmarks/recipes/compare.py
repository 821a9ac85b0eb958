"""Training tokens per second of every recipe, against plain masked language modelling.

Both train in their own processes, in interleaved rounds.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.recipes.worker import BATCH_TOKENS, MASKED_LM_BASELINE, load_recipe
from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.recipes.loading import system_names
from bertwright.timing.interleaved import TimedProcess
from bertwright.training.compilation.payoff import flops_per_token
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from bertwright.training.pretraining_batches import PretrainingBatches

ROUND_SECONDS = 1.0
"""Approximate seconds of each side per round."""

COLUMNS = {
    "system": "recipe",
    "tokens_per_second": "tokens/s",
    "relative_speed": "speed relative to the baseline",
    "relative_flops": "FLOPs relative to the baseline",
    "remark": "remark",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]

CorpusFinder = Callable[[str], tuple[Path, str]]
"""Return the data folder of a system, and the name of its text unless it is the given one."""


def compare(
    systems: Sequence[str],
    size: str,
    find_corpus: CorpusFinder,
    num_rounds: int,
    is_compiled: bool,
    log: Log,
) -> list[dict[str, Any]]:
    """Return a row per system, compared with the baseline on the same data.

    A system that the data cannot train has the reason as its remark. Errors: UserError for an
    unknown system.
    """
    for system in systems:
        if system not in system_names():
            raise UserError(f"there is no system {system!r}{did_you_mean(system, system_names())}")
    texts = {system: find_corpus(system) for system in systems or system_names()}
    rows: dict[str, dict[str, Any]] = {}
    for text in dict.fromkeys(texts.values()):
        data, name = text
        with _start_process(MASKED_LM_BASELINE, size, data, is_compiled) as baseline:
            baseline.seconds_per_step(1)
            for system in (system for system, other in texts.items() if other == text):
                remarks = [*_extra_work(system, size, data), *([name] if name else [])]
                try:
                    row = _compare(system, baseline, size, data, num_rounds, is_compiled)
                except UserError as error:
                    rows[system] = {"system": system, "remark": str(error)}
                    log(f"{system}: {error}")
                    continue
                except RuntimeError:
                    if not is_compiled:
                        raise
                    row = _compare(system, baseline, size, data, num_rounds, is_compiled=False)
                    remarks.append("not compiled: compiled it does not run")
                rows[system] = row | {"remark": ", ".join(remarks)}
                log(
                    f"{system}: {row['tokens_per_second']:,.0f} tokens/s, "
                    f"{row['relative_speed']:.2f} of the baseline"
                )
    return [rows[system] for system in texts]


def _compare(
    system: str, baseline: TimedProcess, size: str, data: Path, num_rounds: int, is_compiled: bool
) -> dict[str, Any]:
    dataset = Dataset.open(data)
    relative_flops = _flops_per_token(system, size, dataset) / _flops_per_token(
        MASKED_LM_BASELINE, size, dataset
    )
    times: list[float] = []
    baseline_times: list[float] = []
    with _start_process(system, size, data, is_compiled) as process:
        process.seconds_per_step(1)
        steps = max(1, round(ROUND_SECONDS / process.seconds_per_step(2)))
        baseline_steps = max(1, round(ROUND_SECONDS / baseline.seconds_per_step(2)))
        for _ in range(num_rounds):
            times.append(process.seconds_per_step(steps))
            baseline_times.append(baseline.seconds_per_step(baseline_steps))
    return {
        "system": system,
        "tokens_per_second": BATCH_TOKENS / median(times),
        "relative_speed": median(b / a for a, b in zip(times, baseline_times, strict=True)),
        "relative_flops": relative_flops,
        "rounds": num_rounds,
    }


def _extra_work(system: str, size: str, data: Path) -> Iterator[str]:
    """Yield what a training step does beyond masked language modelling."""
    recipe = load_recipe(system, size, Dataset.open(data).manifest.tokenizer.kind)
    objectives = recipe.objectives_of(0).values()
    if recipe.decoder is not None:
        yield "encoder and decoder"
    if recipe.encoder.mixer.is_recurrent:
        yield "one position after the other"
    if recipe.encoder.residual.is_reversible:
        yield "blocks recomputed in the backward pass"
    if any(objective.capabilities.is_generator for objective in objectives):
        yield "a generator"
    if any(objective.capabilities.prediction == "permutation" for objective in objectives):
        yield "two streams"


def _start_process(system: str, size: str, data: Path, is_compiled: bool) -> TimedProcess:
    settings = {"system": system, "size": size, "data": str(data), "compiled": is_compiled}
    return TimedProcess("benchmarks.recipes.worker", settings, os.environ)


def _flops_per_token(system: str, size: str, data: Dataset) -> float:
    recipe = fit_recipe_to_data(load_recipe(system, size, data.manifest.tokenizer.kind), data)
    PretrainingBatches(recipe, data).check_data()
    return flops_per_token(recipe, data.tokenizer.vocab_size)[0]
