"""The report of ``bertwright evaluate --suite`` as Markdown tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.files import read_results
from bertwright.runtime.markdown_report import markdown_table
from bertwright.suites.report import REPORT_FILE

MODEL_COLUMNS = {
    "name": "model",
    "parameters": "parameters",
    "tasks": "tasks run",
    "better_than_baselines": "above every baseline",
    "seconds": "seconds",
    "cpu_seconds": "processor seconds",
}
"""Columns of the table of models, by key."""


def read_report(folder: Path) -> dict[str, Any]:
    """Return the report in a folder. Errors: UserError for a folder without one."""
    report = read_results(folder / REPORT_FILE)
    if not {"tasks", "systems", "summary"} <= report.keys():
        raise UserError(f"{folder} holds no report: name a folder of bertwright evaluate --suite")
    return report


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the table of models, that of scores times 100, and what did not run."""
    names = [system["name"] for system in report["systems"]]
    models = [
        {**system, **report["summary"][system["name"]]}
        for system in report["systems"]
        if not system["is_baseline"]
    ]
    columns = {"task": "task", "metric": "metric", **{name: name for name in names}}
    missing = [f"{t['title']}: {t['not_run']}." for t in report["tasks"] if "not_run" in t]
    return [
        *markdown_table(MODEL_COLUMNS, models),
        "",
        *markdown_table({**columns, "chance": "chance"}, score_rows(report)),
        *(["", "Not run: " + " ".join(missing)] if missing else []),
    ]


def score_rows(report: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return a row for each task that ran: scores with their intervals by system."""
    return [
        {
            "task": task["title"],
            "metric": task["metric"],
            **{name: _score(result) for name, result in task["results"].items()},
            "chance": None if task["chance"] is None else f"{100 * task['chance']:.1f}",
        }
        for task in report["tasks"]
        if "results" in task
    ]


def _score(result: Mapping[str, Any]) -> str:
    if "score" not in result:
        return ""
    bounds = ", ".join(f"{100 * bound:.1f}" for bound in result["interval"] or ())
    return f"{100 * result['score']:.1f}" + (f" [{bounds}]" if bounds else "")
