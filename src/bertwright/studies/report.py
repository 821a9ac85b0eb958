"""The results of a study: as a table, as data, and as a plot."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.core.files import atomic_file, write_text
from bertwright.core.statistics import Estimate, estimate
from bertwright.runtime.markdown_report import markdown_table, run_provenance
from bertwright.studies.run import StudyResults
from bertwright.studies.study import Study
from bertwright.studies.verdict import (
    StudyVerdict,
    all_metrics,
    common_metrics,
    evaluate,
    has_metric,
    metric_values,
    overall_label,
)

RESULT_FILE, REPORT_FILE, PLOT_FILE = "result.json", "report.md", "plot.png"

TOKENS_METRIC = "cost.tokens"
"""Name of the metric for the tokens that an arm has read, without padding."""


def write_report(study: Study, results: StudyResults, output: Path) -> dict[str, Any]:
    """Write ``result.json``, ``report.md`` and ``plot.png``; return the content of the first."""
    result = result_dict(study, results)
    write_text(output / RESULT_FILE, json.dumps(result, indent=1) + "\n")
    write_text(
        output / REPORT_FILE,
        "\n".join([f"# {study.name}", "", *report_lines(result), "", run_provenance()]) + "\n",
    )
    plot(study, results, output / PLOT_FILE)
    return result


def result_dict(study: Study, results: StudyResults) -> dict[str, Any]:
    """Return all results as plain data."""
    verdicts = evaluate(study.expected, results)
    return {
        "study": study.as_dict(),
        "equal": str(study.equal),
        "provenance": run_provenance(),
        "arms": {
            arm: {str(seed): dict(metrics) for seed, metrics in by_seed.items()}
            for arm, by_seed in results.items()
        },
        "verdicts": [verdict.as_dict() for verdict in verdicts],
        "verdict": overall_label(verdicts) if verdicts else None,
        "shown": _displayed_metrics(study, results, verdicts),
    }


def stored_results(result: Mapping[str, Any]) -> StudyResults:
    """Return the metrics in a stored result."""
    return {
        arm: {int(seed): metrics for seed, metrics in by_seed.items()}
        for arm, by_seed in result["arms"].items()
    }


def report_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the report in Markdown: the question, a table of arms, and the verdicts."""
    study, shown = result["study"], result["shown"]
    results = stored_results(result)
    num_seeds = len(next(iter(results.values())))
    rows: list[dict[str, object]] = []
    for arm in results:
        row: dict[str, object] = {"arm": arm}
        for name in shown:
            if has_metric(results, arm, name):
                row[name] = _format_estimate(estimate(metric_values(results, arm, name)))
        rows.append(row)
    columns = {"arm": "arm", **{name: _heading(name) for name in shown}}
    cost = f"{result['equal']}{_token_note(study['equal'], results)}"
    lines = [
        f"{study['question']} {study['source']}".strip(),
        "",
        f"Every arm has had {cost}; {_seed_note(num_seeds)}.",
        "",
        *markdown_table(columns, rows),
    ]
    for verdict in result["verdicts"]:
        interval = ""
        if num_seeds > 1:
            low, high = verdict["interval"]
            interval = f" [{low:.4g}, {high:.4g}]"
        lines += [
            "",
            f"- {verdict['expected']}: **{verdict['verdict']}** ({verdict['lead']:+.4g}{interval})",
        ]
    return lines


def _token_note(equal: Mapping[str, Any], results: StudyResults) -> str:
    """Return a note on padding, with the numbers of real tokens if they are measured."""
    if equal.get("tokens") is None:
        return ""
    arms = [arm for arm in results if has_metric(results, arm, TOKENS_METRIC)]
    counts = [count for arm in arms for count in metric_values(results, arm, TOKENS_METRIC)]
    ends = dict.fromkeys(f"{end(counts):,.0f}" for end in (min, max)) if counts else ()
    return ", padding included" + (f" ({' to '.join(ends)} tokens)" if ends else "")


def _seed_note(seeds: int) -> str:
    if seeds == 1:
        return "one seed, too few for a verdict"
    return f"mean and 95 % interval over {seeds} seeds"


def plot(study: Study, results: StudyResults, path: Path) -> None:
    """Plot each displayed metric in a panel: arms as lines, seeds as dots, means with intervals."""
    shown = _displayed_metrics(study, results, evaluate(study.expected, results))
    figure = Figure(figsize=(4.2 * len(shown), 0.5 * len(results) + 1.6), layout="constrained")
    panels: Any = figure.subplots(1, len(shown), squeeze=False, sharey=True)
    names = list(results)
    for axes, name in zip(panels[0], shown, strict=True):
        for y, arm in enumerate(names):
            if not has_metric(results, arm, name):
                continue
            values = metric_values(results, arm, name)
            mean = estimate(values)
            axes.plot(values, [y] * len(values), "o", color="0.7", markersize=5)
            half = 0.0 if mean.num_values < 2 else mean.high - mean.mean
            axes.errorbar(mean.mean, y, xerr=half, fmt="D", color="C0", capsize=4)
        axes.set_title(_heading(name))
        axes.grid(alpha=0.3, axis="x")
    panels[0][0].set_yticks(range(len(names)), names)
    panels[0][0].invert_yaxis()
    FigureCanvasAgg(figure)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def _displayed_metrics(
    study: Study, results: StudyResults, verdicts: Sequence[StudyVerdict]
) -> list[str]:
    """Return the metrics to display.

    These are the metrics that the study states, or else those in its expectations; else the losses
    and accuracies common to all arms, or of any arm; else all metrics.
    """
    if study.shown:
        return list(study.shown)
    names = (name for verdict in verdicts for name in verdict.expectation.metric_names)
    expected = list(dict.fromkeys(names))
    if expected:
        return expected
    endings = ("_loss", "_accuracy", "bits_per_byte", ".accuracy")
    shared = [name for name in common_metrics(results) if name.endswith(endings)]
    metrics = all_metrics(results)
    return shared or [name for name in metrics if name.endswith(endings)] or metrics


def _heading(name: str) -> str:
    return name.removeprefix("held-out.").replace("_", " ").replace(".", ": ")


def _format_estimate(mean: Estimate) -> str:
    if mean.num_values < 2:
        return f"{mean.mean:.4g}"
    return f"{mean.mean:.4g} ± {mean.high - mean.mean:.2g}"
