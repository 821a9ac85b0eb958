"""Scores of both sides with the same seeds, and the seconds of an epoch."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.embedding.compare import checkpoint_folder
from benchmarks.finetuning import trainer as peer
from benchmarks.finetuning.plan import FineTuningPlan, FineTuningTask, finetuning_settings
from benchmarks.finetuning.worker import compare_epoch_times
from bertwright.core.errors import UserError
from bertwright.core.files import read_results, write_text
from bertwright.core.statistics import Estimate, estimate
from bertwright.core.verdicts import Verdict, decide_sequentially, look_sizes
from bertwright.interop.loading import load
from bertwright.models.text_model import TextModel
from bertwright.runtime.device import cpu_description
from bertwright.runtime.parallel import run_parallel
from bertwright.tasks.finetuning.finetune import finetune

FIGURE_KINDS = ("scores", "times")
"""Figures that can be computed."""

COLUMNS = {
    "task": "task",
    "examples": "examples",
    "metric": "metric",
    "ours": "bertwright",
    "theirs": "Trainer",
    "difference": "difference",
    "verdict": "verdict",
    "seeds": "seeds",
    "scored_on": "scored on",
    "epoch_seconds": "seconds per epoch",
    "against_default": "speed-up over the default",
    "against_best": "speed-up over the fastest",
    "processor": "timed on",
}
"""Columns of the table, by key."""


def compare(
    plan_file: Path,
    output: Path,
    figure_kinds: Sequence[str],
    num_rounds: int,
    log: Callable[[str], None],
    num_processes: int = 1,
) -> list[dict[str, Any]]:
    """Return a row for every task, after computing the figures that ``output`` lacks.

    Scores are computed in parallel processes; times need a quiet machine.
    """
    for kind in figure_kinds:
        if kind not in FIGURE_KINDS:
            raise UserError(f"--parts {kind}: write scores, times, or both, separated by a comma")
    plan = FineTuningPlan.load(plan_file)
    output.mkdir(parents=True, exist_ok=True)
    results = {
        name: _TaskResults(output / f"{name}.json", task) for name, task in plan.tasks.items()
    }
    if "scores" in figure_kinds:
        _collect_scores(plan, results, num_processes, log)
    for name, task_results in results.items():
        if "times" in figure_kinds and not task_results.times:
            task_results.add_times(compare_epoch_times(plan_file, name, num_rounds))
            log(f"{name}: {task_results.times}")
    model = load(plan.encoder or checkpoint_folder())
    return [_row(name, plan, model, results[name]) for name in plan.tasks]


def _collect_scores(
    plan: FineTuningPlan,
    results: Mapping[str, "_TaskResults"],
    num_processes: int,
    log: Callable[[str], None],
) -> None:
    """Compute the missing scores of both sides, with more seeds until a task is decided."""
    for num_seeds in look_sizes(plan.max_seeds):
        missing = [
            (name, side, seed)
            for name, task_results in results.items()
            if not task_results.is_decided(plan)
            for side in SIDES
            for seed in range(num_seeds)
            if task_results.score(side, seed) is None
        ]
        jobs = [partial(SIDES[side], plan, plan.tasks[name], seed) for name, side, seed in missing]
        for number, score in run_parallel(jobs, num_processes):
            name, side, seed = missing[number]
            results[name].add_score(side, seed, score)
            log(f"{name}, seed {seed}: {side} {score:.4g}")


class _TaskResults:
    """Results of a task in a file: scores of both sides, their devices, and times.

    Results of other settings are dropped; so are times of another number of steps.
    """

    def __init__(self, file: Path, task: FineTuningTask) -> None:
        self._file = file
        stored = read_results(file)
        settings = task.model_dump(mode="json", exclude={"timed_steps"})
        if stored.get("settings") != settings:
            stored = {}
        self._results: dict[str, Any] = {"settings": settings, "times": {}}
        self._results |= {side: {} for side in SIDES}
        self._results |= stored
        if self.times.get("timed_steps") != task.timed_steps:
            self._results["times"] = {}
        self._timed_steps = task.timed_steps

    def score(self, side: str, seed: int) -> float | None:
        """Return a score; None if it is missing."""
        return self._results[side].get(str(seed))

    def paired_scores(self) -> tuple[list[float], list[float]]:
        """Return the scores of both sides for the seeds that both have, in order."""
        ours, theirs = (self._results[side] for side in SIDES)
        seeds = sorted(set(ours) & set(theirs), key=int)
        return [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]

    def decide(self, plan: FineTuningPlan) -> tuple[Estimate, Verdict]:
        """Return the difference and the verdict on equivalence within the plan's margin."""
        pairs = zip(*self.paired_scores(), strict=True)
        return decide_sequentially(
            [a - b for a, b in pairs], negligible=plan.margin, max_repetitions=plan.max_seeds
        )

    def is_decided(self, plan: FineTuningPlan) -> bool:
        """Return True if more seeds would not change the verdict."""
        return bool(self.paired_scores()[0]) and self.decide(plan)[1].is_decided

    @property
    def times(self) -> dict[str, Any]:
        return self._results["times"]

    @property
    def scored_on(self) -> list[str]:
        return self._results.get("scored_on", [])

    def add_score(self, side: str, seed: int, score: float) -> None:
        """Add the score of one side with one seed."""
        self._results[side][str(seed)] = score
        self._results["scored_on"] = sorted({*self.scored_on, _device_name()})
        self._write()

    def add_times(self, times: dict[str, float]) -> None:
        """Add the times of both sides."""
        about = {"timed_steps": self._timed_steps, "processor": _device_name()}
        self._results["times"] = about | times
        self._write()

    def _write(self) -> None:
        write_text(self._file, json.dumps(self._results, indent=1) + "\n")


def bertwright_score(plan: FineTuningPlan, task: FineTuningTask, seed: int) -> float:
    """Return the score of the best epoch of bertwright."""
    model = load(plan.encoder or checkpoint_folder())
    part = task.build_part(model)
    settings = finetuning_settings(plan, task, part.task.output_type)
    options: dict[str, Any] = {**settings.model_dump(), "seed": seed}
    result = finetune(model, part.task, train=part.train, dev=part.dev, **options)
    return result.scores[0]


def trainer_score(plan: FineTuningPlan, task: FineTuningTask, seed: int) -> float:
    """Return the score of the best epoch of the Trainer, with fast settings and random batches."""
    folder = plan.encoder or checkpoint_folder()
    model = load(folder)
    part = task.build_part(model)
    sequences = part.output_decoder.encode(task.build_example_encoder(model), part.dev)
    scores: list[float] = []

    def after_epoch(stock: Any) -> None:
        outputs = peer.predict_outputs(stock, sequences, part)
        predictions = part.output_decoder.decode(sequences, outputs, part.dev)
        scores.append(next(iter(part.task.score(part.dev, predictions).values())))

    peer.train_stock_model(
        plan, task, part, folder, seed, peer.fast_settings(), after_epoch=after_epoch
    )
    return max(scores)


SIDES: Mapping[str, Callable[[FineTuningPlan, FineTuningTask, int], float]] = {
    "ours": bertwright_score,
    "theirs": trainer_score,
}
"""Functions that return a score, by side."""


def _row(
    name: str, plan: FineTuningPlan, model: TextModel, results: _TaskResults
) -> dict[str, Any]:
    part = plan.tasks[name].build_part(model)
    row: dict[str, Any] = {
        "task": name,
        "examples": len(part.train),
        "metric": part.task.metrics[0],
        **results.times,
    }
    ours, theirs = results.paired_scores()
    if not ours:
        return row
    difference, verdict = results.decide(plan)
    return {
        **row,
        "ours": str(estimate(ours)),
        "theirs": str(estimate(theirs)),
        "difference": str(difference),
        "verdict": _verdict_text(verdict, plan.margin),
        "seeds": len(ours),
        **({"scored_on": ", ".join(results.scored_on)} if results.scored_on else {}),
    }


def _verdict_text(verdict: Verdict, margin: float) -> str:
    names = {"seen": "bertwright is better", "opposite": "the Trainer is better"}
    if verdict.label == "no difference":
        return f"no difference of {margin:g} or more"
    return names.get(verdict.label, verdict.text("seeds"))


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_description()
