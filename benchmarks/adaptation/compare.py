"""Run every cell of a plan and return the table of scores."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from benchmarks.adaptation.plan import AdaptationPlan
from benchmarks.embedding.compare import checkpoint_folder
from benchmarks.result_store import ResultStore
from bertwright.core.statistics import estimate, paired_difference
from bertwright.interop.loading import load
from bertwright.tasks.finetuning.finetune import finetune_tasks

Log = Callable[[str], None]

COLUMNS = {
    "encoder": "encoder",
    "task": "task",
    "method": "method",
    "mean": "mean",
    "interval": "95 % interval",
    "deviation": "deviation",
    "median": "median",
    "best": "best",
    "difference": "difference",
    "trainable": "trainable, %",
}
"""Columns of the table, by key."""


class TableCell(NamedTuple):
    """An encoder, a task and a method."""

    encoder: str
    task: str
    method: str


def compare(
    plan: AdaptationPlan, output: Path, log: Log, num_processes: int = 1
) -> list[dict[str, Any]]:
    """Return the rows of the table; runs with results in ``output`` are not repeated."""
    output.mkdir(parents=True, exist_ok=True)
    runs = ResultStore(output / "runs.json")
    cells = [(cell, seed) for cell in table_cells(plan) for seed in range(plan.seeds)]
    names = {_run_hash(plan, cell, seed): (cell, seed) for cell, seed in cells}
    jobs = {name: partial(run, plan, cell, seed) for name, (cell, seed) in names.items()}

    def log_result(name: str, result: dict[str, float]) -> None:
        cell, seed = names[name]
        log(f"{' / '.join(cell)}, seed {seed}: {result['score']:.4g}")

    runs.run_missing(jobs, num_processes, log_result)
    results: dict[TableCell, list[dict[str, float]]] = {}
    for cell, seed in cells:
        results.setdefault(cell, []).append(runs.results[_run_hash(plan, cell, seed)])
    return [_row(plan, cell, seed_results, results) for cell, seed_results in results.items()]


def table_cells(plan: AdaptationPlan) -> Iterator[TableCell]:
    """Yield all cells, encoder by encoder and task by task."""
    for encoder in plan.encoders:
        for task in plan.tasks:
            for name, method in plan.methods.items():
                if method.tasks is None or task in method.tasks:
                    yield TableCell(encoder, task, name)


def run(plan: AdaptationPlan, cell: TableCell, seed: int) -> dict[str, float]:
    """Return the score of a run, its fraction of trainable parameters, and its seconds."""
    model = load(plan.encoders[cell.encoder] or checkpoint_folder())
    names = [cell.task, *(n for n in plan.methods[cell.method].auxiliary_tasks if n != cell.task)]
    task_data = [plan.tasks[name].load_examples(name) for name in names]
    result = finetune_tasks(model, task_data, **plan.settings_of(cell.task, cell.method, seed))
    score = next(iter(result.seed_reports[0].scores[cell.task].values()))
    return {
        "score": score,
        "trained": result.run.trained_fraction(),
        "seconds": result.seconds,
    }


def _row(
    plan: AdaptationPlan,
    cell: TableCell,
    runs: list[dict[str, float]],
    results: dict[TableCell, list[dict[str, float]]],
) -> dict[str, Any]:
    scores = [run["score"] for run in runs]
    summary = estimate(scores)
    other = results.get(cell._replace(method=plan.baseline)) if plan.baseline else None
    baseline = other if cell.method != plan.baseline else None
    return {
        **cell._asdict(),
        "mean": summary.mean,
        "interval": f"{summary.low:.4g} to {summary.high:.4g}" if summary.interval else None,
        "deviation": stdev(scores) if len(scores) > 1 else None,
        "median": median(scores),
        "best": max(scores),
        "difference": str(paired_difference(scores, [o["score"] for o in baseline]))
        if baseline
        else None,
        "trainable": 100 * runs[0]["trained"],
        "seconds": fmean(run["seconds"] for run in runs),
        "scores": scores,
    }


def _run_hash(plan: AdaptationPlan, cell: TableCell, seed: int) -> str:
    """Return a hash of everything that determines a run."""
    method = plan.methods[cell.method]
    inputs = [
        cell.encoder,
        str(plan.encoders[cell.encoder]),
        [plan.tasks[n].model_dump(mode="json") for n in (cell.task, *method.auxiliary_tasks)],
        plan.settings_of(cell.task, cell.method, seed),
    ]
    return sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
