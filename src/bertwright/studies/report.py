"""A study in a table, as data, and in a picture."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.document import origin, table
from bertwright.files import atomic_file, write_text
from bertwright.statistics import Estimate, estimate
from bertwright.studies.running import Found
from bertwright.studies.study import Equal, Expectation, Study
from bertwright.studies.verdict import (
    Verdict,
    all_figures,
    figure,
    has_figure,
    overall,
    shared_figures,
    verdicts,
)

RESULT, TABLE, PICTURE = "result.json", "report.md", "picture.png"

TOKENS = "cost.tokens"
"""The figure of what an arm has read, without padding."""


def write_report(study: Study, found: Found, out: Path) -> dict[str, Any]:
    """Leave ``result.json``, ``report.md`` and ``picture.png`` in a folder; returns the first."""
    result = as_dict(study, found)
    write_text(out / RESULT, json.dumps(result, indent=1) + "\n")
    write_text(out / TABLE, "\n".join([f"# {study.name}", "", *lines(result), "", origin()]) + "\n")
    draw(study, found, out / PICTURE)
    return result


def as_dict(study: Study, found: Found) -> dict[str, Any]:
    """Everything that was found, as plain data."""
    judged = verdicts(study.expected, found)
    return {
        "study": study.as_dict(),
        "equal": str(study.equal),
        "origin": origin(),
        "arms": {arm: {str(seed): dict(f) for seed, f in by.items()} for arm, by in found.items()},
        "verdicts": [verdict.as_dict() for verdict in judged],
        "verdict": overall(judged) if judged else None,
        "shown": _shown_figures(study, found, judged),
    }


def judged_anew(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result that was stored, with what is said of its figures today."""
    expected = [Expectation.model_validate(each) for each in result["study"]["expected"]]
    found = {
        arm: {int(seed): figures for seed, figures in by.items()}
        for arm, by in result["arms"].items()
    }
    judged = verdicts(expected, found)
    return {
        **result,
        "equal": str(Equal.model_validate(result["study"]["equal"])),
        "verdicts": [verdict.as_dict() for verdict in judged],
        "verdict": overall(judged) if judged else None,
    }


def lines(result: Mapping[str, Any]) -> list[str]:
    """The same for a document: the question, a table of arms, and what became of the claim."""
    study, shown = result["study"], result["shown"]
    found = {
        arm: {int(seed): figures for seed, figures in by.items()}
        for arm, by in result["arms"].items()
    }
    seeds = len(next(iter(found.values())))
    rows: list[dict[str, object]] = []
    for arm in found:
        row: dict[str, object] = {"arm": arm}
        for name in shown:
            if has_figure(found, arm, name):
                row[name] = _in_short(estimate(figure(found, arm, name)))
        rows.append(row)
    columns = {"arm": "arm", **{name: _heading(name) for name in shown}}
    told = [
        f"{study['question']} {study['source']}".strip(),
        "",
        f"Every arm has had {result['equal']}{_of_them(study['equal'], found)}; {_over(seeds)}.",
        "",
        *table(columns, rows),
    ]
    for verdict in result["verdicts"]:
        interval = ""
        if seeds > 1:
            low, high = verdict["interval"]
            interval = f" [{low:.4g}, {high:.4g}]"
        told += [
            "",
            f"- {verdict['expected']}: **{verdict['verdict']}** ({verdict['lead']:+.4g}{interval})",
        ]
    return told


def _of_them(equal: Mapping[str, Any], found: Found) -> str:
    """What so many places are, and how many of them held tokens where that was measured."""
    if equal.get("tokens") is None:
        return ""
    arms = [arm for arm in found if has_figure(found, arm, TOKENS)]
    numbers = [number for arm in arms for number in figure(found, arm, TOKENS)]
    ends = dict.fromkeys(f"{end(numbers):,.0f}" for end in (min, max)) if numbers else ()
    return ", padding included" + (f" ({' to '.join(ends)} tokens)" if ends else "")


def _over(seeds: int) -> str:
    if seeds == 1:
        return "one seed, which settles nothing"
    return f"mean and 95 % interval over {seeds} seeds"


def draw(study: Study, found: Found, picture: Path) -> None:
    """Each shown figure in a panel: an arm a row, a seed a dot, the mean with its interval."""
    shown = _shown_figures(study, found, verdicts(study.expected, found))
    drawing = Figure(figsize=(4.2 * len(shown), 0.5 * len(found) + 1.6), layout="constrained")
    panels: Any = drawing.subplots(1, len(shown), squeeze=False, sharey=True)
    names = list(found)
    for axes, name in zip(panels[0], shown, strict=True):
        for place, arm in enumerate(names):
            if not has_figure(found, arm, name):
                continue
            values = figure(found, arm, name)
            mean = estimate(values)
            axes.plot(values, [place] * len(values), "o", color="0.7", markersize=5)
            half = 0.0 if mean.count < 2 else mean.high - mean.mean
            axes.errorbar(mean.mean, place, xerr=half, fmt="D", color="C0", capsize=4)
        axes.set_title(_heading(name))
        axes.grid(alpha=0.3, axis="x")
    panels[0][0].set_yticks(range(len(names)), names)
    panels[0][0].invert_yaxis()
    FigureCanvasAgg(drawing)
    with atomic_file(picture) as temporary:
        drawing.savefig(temporary, dpi=110, format="png")


def _shown_figures(study: Study, found: Found, judged: Sequence[Verdict]) -> list[str]:
    """Those that the study states, or that the claim is about; else losses and accuracies that all
    arms have, or that any has; else all figures."""
    if study.shown:
        return list(study.shown)
    figures = (figure for verdict in judged for figure in verdict.expectation.measures)
    claimed = list(dict.fromkeys(figures))
    if claimed:
        return claimed
    endings = ("_loss", "_accuracy", "bits_per_byte", ".accuracy")
    shared = [name for name in shared_figures(found) if name.endswith(endings)]
    own = all_figures(found)
    return shared or [name for name in own if name.endswith(endings)] or own


def _heading(name: str) -> str:
    return name.removeprefix("held-out.").replace("_", " ").replace(".", ": ")


def _in_short(mean: Estimate) -> str:
    if mean.count < 2:
        return f"{mean.mean:.4g}"
    return f"{mean.mean:.4g} ± {mean.high - mean.mean:.2g}"
