"""The report of a suite as one HTML page without anything to load."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from jinja2 import Environment, StrictUndefined

from bertwright.core.pages import read_page_file, shared_script, shared_style

PACKAGE = "bertwright.suites"

NUM_COLOURS = 6
"""Number of colours of models; a baseline has a shade of grey."""

METRIC_NAMES = {
    "matthews": "Matthews correlation",
    "span-f1": "F1 of spans",
    "macro-f1": "macro F1",
    "negative-mean-squared-error": "minus the mean squared error",
}
"""Names of metrics that say more than their key."""

PLOT_WIDTH, ROW_HEIGHT, MARGIN = 240, 14, 9
"""Sizes of a plot in CSS pixels."""


def render_suite_page(report: Mapping[str, Any]) -> str:
    """Render the page of a report of :func:`~bertwright.suites.report.suite_report`."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "percent": lambda value: f"{100 * value:.1f}",
        "bounds": _format_bounds,
        "signed": lambda value: f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}"),
        "duration": _format_duration,
        "metric": _metric_name,
    }
    tasks = [task for task in report["tasks"] if "results" in task]
    names = [system["name"] for system in report["systems"]]
    return environment.from_string(read_page_file(PACKAGE, "report.html")).render(
        report=report,
        style=shared_style() + read_page_file(PACKAGE, "report.css"),
        script=shared_script(),
        systems=[
            {**system, "class": name}
            for system, name in zip(report["systems"], _system_classes(report), strict=True)
        ],
        abilities=[
            (ability, [*group]) for ability, group in groupby(tasks, lambda t: t["ability"])
        ],
        tasks=tasks,
        plots={task["name"]: _plot(task, names, _system_classes(report)) for task in tasks},
        comparisons=_comparisons(tasks, names),
        not_run=_not_run(report, names),
    )


def _system_classes(report: Mapping[str, Any]) -> list[str]:
    """Return the CSS class of each system: a colour for models, a grey for baselines."""
    counts = {True: 0, False: 0}
    classes: list[str] = []
    for system in report["systems"]:
        is_baseline = system["is_baseline"]
        number = counts[is_baseline] % NUM_COLOURS
        classes.append(f"grey-{number}" if is_baseline else f"colour-{number}")
        counts[is_baseline] += 1
    return classes


def _plot(
    task: Mapping[str, Any], names: Sequence[str], classes: Sequence[str]
) -> Mapping[str, Any]:
    """Return the coordinates of a plot: a point with its interval for each system in a row."""
    results = task["results"]
    scored = [(n, c) for n, c in zip(names, classes, strict=True) if "score" in results[n]]
    lows = [(results[n]["interval"] or [results[n]["score"]])[0] for n, _ in scored]
    start = 0.0 if min(lows, default=0.0) >= 0 else -1.0 if min(lows) < -0.2 else -0.2
    scale = (PLOT_WIDTH - 2 * MARGIN) / (1 - start)

    def x(value: float) -> float:
        return round(MARGIN + (value - start) * scale, 1)

    rows: list[dict[str, Any]] = []
    for number, (name, css_class) in enumerate(scored):
        score, interval = results[name]["score"], results[name]["interval"]
        low, high = interval or [score, score]
        middle = ROW_HEIGHT * (number + 0.5)
        label = f"{name}: {100 * score:.1f}"
        rows.append(
            {"x": x(score), "low": x(low), "high": x(high), "y": middle}
            | {"class": css_class, "label": label}
        )
    ticks = [t / 4 for t in range(5)] if start == 0 else [start, 0.0, 0.5, 1.0]
    return {
        "width": PLOT_WIDTH,
        "height": ROW_HEIGHT * max(len(scored), 1) + 14,
        "bottom": ROW_HEIGHT * max(len(scored), 1),
        "rows": rows,
        "ticks": [{"x": x(tick), "label": f"{100 * tick:.0f}"} for tick in ticks],
        "chance": None if task["chance"] is None else x(max(task["chance"], start)),
    }


def _comparisons(tasks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a table for each model that is compared: the others, and a row for each task."""
    comparisons: list[dict[str, Any]] = []
    for first in names:
        by_task = {
            task["title"]: {d["second"]: d for d in task["differences"] if d["first"] == first}
            for task in tasks
        }
        others = [name for name in names if any(name in row for row in by_task.values())]
        rows = [
            (title, [row.get(name) for name in others]) for title, row in by_task.items() if row
        ]
        if rows:
            comparisons.append({"first": first, "others": others, "rows": rows})
    return comparisons


def _not_run(report: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return what did not run: the task, the systems and the reason."""
    lines: list[tuple[str, str, str]] = []
    if "word_vectors_not_run" in report:
        lines.append(("all tasks", "word vectors", report["word_vectors_not_run"]))
    for task in report["tasks"]:
        if "not_run" in task:
            lines.append((task["title"], "all", task["not_run"]))
            continue
        reasons: dict[str, list[str]] = {}
        for name in names:
            if (reason := task["results"][name].get("not_run")) is not None:
                reasons.setdefault(reason, []).append(name)
        lines += [(task["title"], ", ".join(who), reason) for reason, who in reasons.items()]
    return lines


def _metric_name(key: str) -> str:
    return METRIC_NAMES.get(key, key)


def _format_bounds(interval: Sequence[float] | None) -> str:
    if interval is None:
        return ""
    low, high = (f"{100 * bound:.1f}".replace("-", "\N{MINUS SIGN}") for bound in interval)
    return f"{low} to {high}"


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
