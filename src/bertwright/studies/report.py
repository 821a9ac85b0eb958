"""The results of a study: as a table, as data, and as a plot."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.core.files import atomic_file, write_text
from bertwright.core.statistics import Estimate, estimate
from bertwright.core.verdicts import Verdict, look_error
from bertwright.runtime.markdown_report import markdown_table, run_provenance
from bertwright.studies.body import body_lines, body_report
from bertwright.studies.study import Study, StudyResults
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


def write_report(
    study: Study, results: StudyResults, output: Path, max_seeds: int | None = None
) -> dict[str, Any]:
    """Write ``result.json``, ``report.md`` and ``plot.png``; return the content of the first.

    ``max_seeds`` is that of a sequential study.
    """
    result = result_dict(study, results, max_seeds)
    write_text(output / RESULT_FILE, json.dumps(result, indent=1) + "\n")
    write_text(
        output / REPORT_FILE,
        "\n".join([f"# {study.name}", "", *report_lines(result), "", run_provenance()]) + "\n",
    )
    plot(study, results, output / PLOT_FILE)
    return result


def result_dict(
    study: Study, results: StudyResults, max_seeds: int | None = None
) -> dict[str, Any]:
    """Return all results as plain data."""
    verdicts = evaluate(study, results, max_seeds)
    return {
        "study": study.as_dict(),
        "equal": str(study.equal),
        "max_seeds": max_seeds,
        "body": body_report(study),
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
    seeds = [len(by_seed) for by_seed in results.values()]
    rows: list[dict[str, object]] = []
    for arm in results:
        row: dict[str, object] = {"arm": arm}
        for name in shown:
            if has_metric(results, arm, name):
                row[name] = _format_estimate(estimate(metric_values(results, arm, name)))
        rows.append(row)
    columns = {"arm": "arm", **{name: _heading(name) for name in shown}}
    cost = f"{result['equal']}{_token_note(study['equal'], results)}"
    if any(arm.get("cost", 1.0) != 1.0 for arm in study["arms"].values()):
        cost += ", times the factor stated below"
    lines = [
        f"{study['question']} {study['source']}".strip(),
        "",
        f"Every arm has had {cost}; {_seed_note(seeds, result['max_seeds'])}.",
        "",
        *markdown_table(columns, rows),
    ]
    for verdict in result["verdicts"]:
        lines += ["", f"- {verdict['expected']}: {_verdict_text(verdict)}"]
    return [*lines, "", *body_lines(result["body"])]


def _verdict_text(verdict: Mapping[str, Any]) -> str:
    """Return a verdict with effect, interval and seeds, and what is missing for a decision."""
    effect = f"{verdict['effect']:+.4g}"
    if verdict["interval"] is not None:
        low, high = verdict["interval"]
        effect += f" [{low:.4g}, {high:.4g}], {verdict['seeds']} seeds"
    stored = Verdict(verdict["verdict"], verdict.get("reason", ""), verdict.get("units_needed"))
    label, _, note = stored.text("seeds").partition(": ")
    return f"**{label}** ({effect}{note and f'; {note}'})"


def _token_note(equal: Mapping[str, Any], results: StudyResults) -> str:
    """Return a note on padding, with the numbers of real tokens if they are measured."""
    if equal.get("tokens") is None:
        return ""
    arms = [arm for arm in results if has_metric(results, arm, TOKENS_METRIC)]
    counts = [count for arm in arms for count in metric_values(results, arm, TOKENS_METRIC)]
    ends = dict.fromkeys(f"{end(counts):,.0f}" for end in (min, max)) if counts else ()
    return ", padding included" + (f" ({' to '.join(ends)} tokens)" if ends else "")


def _seed_note(seeds: Sequence[int], max_seeds: int | None) -> str:
    if max(seeds) == 1:
        return "one seed, too few for a verdict"
    counts = " to ".join(str(end) for end in dict.fromkeys((min(seeds), max(seeds))))
    note = f"mean and 95 % interval over {counts} seeds"
    if max_seeds is None:
        return note
    level = 100 * (1 - look_error(max_seeds))
    return f"{note}, added until decided; intervals of differences at {level:.4g} %"


def plot(study: Study, results: StudyResults, path: Path) -> None:
    """Plot each displayed metric in a panel: arms as lines, seeds as dots, means with intervals."""
    shown = _displayed_metrics(study, results, evaluate(study, results))
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
