"""The report of a suite as plain data: scores with intervals, and paired differences."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.files import output_lock, require_writable, write_text
from bertwright.core.optional_dependencies import require_library
from bertwright.interop.loading import load
from bertwright.models.text_model import TextModel
from bertwright.runtime.markdown_report import run_provenance
from bertwright.suites.mteb import mteb_scores
from bertwright.suites.page import render_suite_page
from bertwright.suites.runner import (
    WORD_VECTORS,
    WORDS_ALONE,
    Log,
    SuiteSystem,
    SystemOutcome,
    TaskOutcome,
    require_evaluable,
    run_suite,
    suite_systems,
)
from bertwright.suites.suite import EvaluationSuite
from bertwright.suites.tasks import PreparedTask
from bertwright.tasks.evaluation.bootstrap import finite_bounds, score_difference, score_interval

REPORT_FILE, PAGE_FILE = "report.json", "report.html"
PREDICTIONS_FOLDER, MTEB_FOLDER = "predictions", "mteb"


def evaluate_suite(
    suite: EvaluationSuite,
    data: Path,
    models: Mapping[str, TextModel],
    output: Path,
    *,
    word_vectors: TextModel | None = None,
    with_mteb: bool = False,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Run a suite, write its report as HTML and JSON into ``output``, and return it.

    ``word_vectors`` is a model to use as the baseline of word vectors, in place of one that the
    suite trains. ``with_mteb`` runs the tasks of text vectors through mteb as well. Results of an
    earlier run in ``output`` are used again.

    Errors: UserError for a model that cannot be evaluated; MissingExtra for ``with_mteb`` without
    mteb.
    """
    require_evaluable(models, word_vectors)
    if with_mteb:
        require_library("mteb", "mteb")
    for name in (REPORT_FILE, PAGE_FILE):
        require_writable(output / name)
    output.mkdir(parents=True, exist_ok=True)
    with output_lock(output):
        reason = None
        if word_vectors is None:
            word_vectors, reason = _train_word_vectors(suite, data, output, log)
        systems = suite_systems(models, word_vectors)
        outcomes = run_suite(suite, data, systems, output / PREDICTIONS_FOLDER, log)
        report = suite_report(suite, systems, outcomes, run_provenance())
        if reason is not None:
            report["word_vectors_not_run"] = reason
        if with_mteb:
            report["mteb"] = mteb_scores(suite, data, models, output / MTEB_FOLDER, log)
        write_text(output / REPORT_FILE, json.dumps(report, indent=1) + "\n")
        write_text(output / PAGE_FILE, render_suite_page(report))
    return report


def suite_report(
    suite: EvaluationSuite,
    systems: Sequence[SuiteSystem],
    outcomes: Iterable[TaskOutcome],
    provenance: str,
) -> dict[str, Any]:
    """Return the report: ``systems``, ``tasks`` and a ``summary`` of each model."""
    tasks = [_task_record(outcome, systems) for outcome in outcomes]
    return {
        "suite": suite.name,
        "about": suite.about,
        "provenance": provenance,
        "systems": [_system_record(system) for system in systems],
        "tasks": tasks,
        "summary": {s.name: _summarise(s.name, tasks) for s in systems if not s.is_baseline},
    }


def _train_word_vectors(
    suite: EvaluationSuite, data: Path, output: Path, log: Log
) -> tuple[TextModel | None, str | None]:
    """Return the word vectors of a suite, or the reason why there are none."""
    if suite.word_vectors is None:
        return None, "the suite trains none"
    try:
        log("word vectors: training, or those that were trained before")
        return load(suite.word_vectors.train(data, output), "float32"), None
    except UserError as error:
        log(f"word vectors: not trained: {error}")
        return None, str(error)


def _system_record(system: SuiteSystem) -> dict[str, Any]:
    record: dict[str, Any] = {"name": system.name, "is_baseline": system.is_baseline}
    if system.model is not None:
        record["parameters"] = sum(p.numel() for p in system.model.model.parameters())
    return record


def _task_record(outcome: TaskOutcome, systems: Sequence[SuiteSystem]) -> dict[str, Any]:
    config, task = outcome.config, outcome.task
    record: dict[str, Any] = {
        "name": outcome.name,
        "title": config.title or outcome.name,
        "ability": config.ability,
        "kind": config.kind_name(),
    }
    if task is None:
        return {**record, "not_run": outcome.not_run}
    scored = {name: o for name, o in outcome.outcomes.items() if o.not_run is None}
    return {
        **record,
        "metric": task.metric,
        "method": task.method,
        "words_method": task.words_method,
        "unit": task.unit,
        "examples": task.num_examples,
        "chance": task.chance,
        "results": {name: _result_record(task, o) for name, o in outcome.outcomes.items()},
        "differences": [
            _difference_record(task, scored, first.name, second.name)
            for first, second in combinations(systems, 2)
            if not first.is_baseline and {first.name, second.name} <= scored.keys()
        ],
    }


def _result_record(task: PreparedTask, outcome: SystemOutcome) -> dict[str, Any]:
    if outcome.not_run is not None:
        return {"not_run": outcome.not_run}
    interval = score_interval(task.sums(outcome.predictions))
    return {
        "score": interval.value,
        "interval": finite_bounds(interval),
        "parts": dict(task.parts(outcome.predictions)),
        "seconds": outcome.seconds,
        "cpu_seconds": outcome.cpu_seconds,
    }


def _difference_record(
    task: PreparedTask, outcomes: Mapping[str, SystemOutcome], first: str, second: str
) -> dict[str, Any]:
    difference = score_difference(
        task.sums(outcomes[first].predictions), task.sums(outcomes[second].predictions)
    )
    bounds = finite_bounds(difference)
    return {
        "first": first,
        "second": second,
        "difference": difference.value,
        "interval": bounds,
        "is_significant": bounds is not None and (bounds[0] > 0 or bounds[1] < 0),
    }


def _summarise(name: str, tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many tasks a model ran, in how many it beats every baseline, and its seconds.

    To beat a baseline, the interval of the difference must lie above 0; where no baseline ran, the
    interval of the score must lie above chance.
    """
    results = [task for task in tasks if "score" in task.get("results", {}).get(name, {})]
    return {
        "tasks": len(results),
        "better_than_baselines": sum(_beats_baselines(name, task) for task in results),
        "seconds": round(sum(task["results"][name]["seconds"] for task in results), 1),
        "cpu_seconds": round(sum(task["results"][name]["cpu_seconds"] for task in results), 1),
    }


def _beats_baselines(name: str, task: Mapping[str, Any]) -> bool:
    low = (task["results"][name]["interval"] or [float("-inf")])[0]
    if task["chance"] is not None and low <= task["chance"]:
        return False
    differences = [
        d["interval"]
        for d in task["differences"]
        if d["first"] == name and d["second"] in (WORD_VECTORS, WORDS_ALONE)
    ]
    return all(interval is not None and interval[0] > 0 for interval in differences)
