"""Run every variant of a plan, time its models, and return the table."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.compression.plan import ArtefactForm, CompressionPlan
from benchmarks.compression.variants import VariantBuilder, require_feasible
from benchmarks.result_store import ResultStore
from bertwright.core.errors import UserError
from bertwright.core.statistics import estimate, paired_difference
from bertwright.runtime.device import cpu_description
from bertwright.runtime.parallel import run_parallel
from bertwright.timing.artefacts import TIMED_SHAPES, interleaved_seconds, ratio_interval

Log = Callable[[str], None]

FIGURE_KINDS = ("scores", "times")
"""Figures that can be computed."""

COLUMNS = {
    "task": "task",
    "variant": "variant",
    "form": "form",
    "mean": "score",
    "interval": "95 % interval",
    "kept": "kept, %",
    "lost": "lost, points",
    "over_undistilled": "points over the undistilled student",
    "parameters": "parameters, M",
    "layers": "layers",
    "megabytes": "MB",
    "smaller": "times smaller",
    **{
        f"{key}_{batch}x{length}": f"{heading} {batch}x{length}"
        for batch, length, _ in TIMED_SHAPES
        for key, heading in (("ms", "ms at"), ("faster", "times faster at"))
    },
    "processor": "timed on",
}
"""Columns of the table, by key."""


def run_plan(
    plan: CompressionPlan,
    output: Path,
    models: Path,
    figure_kinds: Sequence[str],
    num_rounds: int,
    log: Log,
    num_processes: int = 1,
) -> list[dict[str, Any]]:
    """Return the rows of the table, after computing the figures that ``output`` lacks.

    Scores are computed in parallel processes, times are not. Errors: UserError for an unknown kind
    of figure, for infeasible variants before anything is trained, and for times of models that are
    not in ``models``.
    """
    for kind in figure_kinds:
        if kind not in FIGURE_KINDS:
            raise UserError(f"--parts {kind}: choose from {', '.join(FIGURE_KINDS)}")
    output.mkdir(parents=True, exist_ok=True)
    runs, times = ResultStore(output / "runs.json"), ResultStore(output / "times.json")
    builders = [VariantBuilder(plan, task, models) for task in plan.tasks]
    if "scores" in figure_kinds:
        _collect_scores(plan, builders, runs, num_processes, log)
    rows: list[dict[str, Any]] = []
    for builder in builders:
        if "times" in figure_kinds and builder.is_timed:
            _collect_times(builder, builder.variants, times, num_rounds, log)
        rows += _task_results(builder, builder.variants, runs.results, times.results)
    return rows


def _collect_scores(
    plan: CompressionPlan,
    builders: Sequence[VariantBuilder],
    store: ResultStore,
    num_processes: int,
    log: Log,
) -> None:
    """Run everything without a result, teachers first."""
    runs = {
        builder.run_name(variant, seed): (builder, variant, seed)
        for builder in builders
        for variant in builder.variants
        for seed in range(plan.seeds)
    }
    missing = {name: run for name, run in runs.items() if name not in store.results}
    if not missing:
        return
    require_feasible(plan)
    teachers = {
        (builder.task, seed): partial(builder.train_teacher, seed)
        for builder, _, seed in missing.values()
    }
    for _ in run_parallel(list(teachers.values()), num_processes):
        pass
    jobs = {
        name: partial(builder.build, variant, seed)
        for name, (builder, variant, seed) in missing.items()
    }

    def log_result(name: str, result: dict[str, Any]) -> None:
        builder, variant, seed = missing[name]
        log(f"{builder.task} / {variant}, seed {seed}: {_describe_run(result)}")

    store.run_missing(jobs, num_processes, log_result)


def _timed_forms(
    builder: VariantBuilder, variants: Sequence[str]
) -> list[tuple[str, ArtefactForm]]:
    """Return every variant and form, the baseline first."""
    plan = builder.plan
    forms: list[tuple[str, ArtefactForm]] = [
        (variant, form) for variant in variants for form in plan.variants[variant].forms
    ]
    baseline = plan.baseline, plan.variants[plan.baseline].forms[0]
    return sorted(forms, key=lambda form: form != baseline)


def _collect_times(
    builder: VariantBuilder, variants: Sequence[str], store: ResultStore, num_rounds: int, log: Log
) -> None:
    """Time all models of a task in interleaved rounds, unless all have times."""
    forms = _timed_forms(builder, variants)
    names = [f"{builder.run_name(variant, 0)} {form}" for variant, form in forms]
    if all(name in store.results for name in names):
        return
    artefacts = [builder.artefact(variant, form) for variant, form in forms]
    if missing := next((a for a in artefacts if not a.folder.is_dir()), None):
        raise UserError(
            f"{missing.folder} does not exist, but has scores: name the folder of its models with "
            f"--models, or another -o"
        )
    results: dict[str, dict[str, Any]] = {name: {"processor": cpu_description()} for name in names}
    for batch, length, steps in TIMED_SHAPES:
        shape = f"{batch}x{length}"
        settings = {"batch_size": batch, "max_length": length, "threads": None}
        seconds = interleaved_seconds(artefacts, settings, steps, num_rounds)
        for name, times in zip(names, seconds, strict=True):
            results[name][f"ms_{shape}"] = 1000 * median(times)
            results[name][f"faster_{shape}"] = median(seconds[0]) / median(times)
            results[name][f"interval_{shape}"] = list(ratio_interval(seconds[0], times))
        log(f"{builder.task}, {shape}: timed")
    for name, result in results.items():
        store.add(name, result)


def _task_results(
    builder: VariantBuilder, variants: Sequence[str], runs: dict[str, Any], times: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of a task, for variants with results of all seeds."""
    plan = builder.plan
    finished: dict[str, list[Any]] = {}
    for variant in variants:
        names = [builder.run_name(variant, seed) for seed in range(plan.seeds)]
        if all(name in runs for name in names):
            finished[variant] = [runs[name] for name in names]
    if plan.baseline not in finished:
        return []
    form = plan.variants[plan.baseline].forms[0]
    baseline = [run["forms"][form] for run in finished[plan.baseline]]
    return [
        _row(finished[variant], form, baseline)
        | {"task": builder.task, "variant": variant, "form": form}
        | times.get(f"{builder.run_name(variant, 0)} {form}", {})
        for variant, form in _timed_forms(builder, list(finished))
    ]


def _row(
    runs: Sequence[dict[str, Any]], form: ArtefactForm, baseline: Sequence[dict[str, float]]
) -> dict[str, Any]:
    """Return the figures of a form over all seeds, relative to the baseline."""
    results = [run["forms"][form] for run in runs]
    scores = [result["score"] for result in results]
    baseline_scores = [result["score"] for result in baseline]
    undistilled = [run["undistilled"] for run in runs]
    summary, baseline_mean = estimate(scores), estimate(baseline_scores).mean
    return {
        "mean": summary.mean,
        "interval": f"{summary.low:.4g} to {summary.high:.4g}" if summary.interval else None,
        "baseline_mean": baseline_mean,
        "kept": 100 * summary.mean / baseline_mean,
        "lost": _points_difference(baseline_scores, scores),
        "over_undistilled": None
        if None in undistilled
        else _points_difference(scores, undistilled),
        "parameters": runs[0]["parameters"] / 1e6,
        "layers": runs[0]["layers"],
        "megabytes": results[0]["bytes"] / 1e6,
        "smaller": baseline[0]["bytes"] / results[0]["bytes"],
        "scores": scores,
        "undistilled": None if None in undistilled else undistilled,
    }


def _points_difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Return the paired difference of two lists of scores, in points."""
    return str(
        paired_difference([100 * score for score in first], [100 * score for score in second])
    )


def _describe_run(run: dict[str, Any]) -> str:
    return ", ".join(f"{form} {result['score']:.4f}" for form, result in run["forms"].items())
