"""The rows in a document: what was asked, what held, and every figure beside its baseline; and in a
picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.document import table, write_section
from bertwright.files import atomic_file
from bertwright.statistics import Estimate
from bertwright.studies.compression_checks.row import Checked, Measured, shown
from bertwright.studies.compression_checks.rows import place

SECTION = "checks of compression"

ROWS = {
    "id": "row",
    "question": "question",
    "source": "source",
    "checks": "exact checks",
    "seconds": "seconds",
}
FIGURES = {
    "id": "row",
    "what": "figure",
    "over": "over",
    "mean": "mean",
    "baseline": "less",
    "lead": "lead",
    "asked": "asked",
}
"""What the two tables show, by key."""


def write_checks(checked: Sequence[Checked], document: Path) -> None:
    """Write both tables."""
    # Those that were alone come last in time, and where they belong in a table.
    checked = sorted(checked, key=lambda each: place(each.row))
    lines = [
        "A toy of four blocks 64 wide: it shows that machinery and signs are right, and is no "
        "evidence for published figures. Means with intervals of 95 %, differences pair by pair. "
        + ("These are from a quick check, which trains hardly at all." if checked[0].quick else ""),
        "",
        *table(ROWS, [_of_row(each) for each in checked]),
        "",
        *table(FIGURES, [_of_figure(each, f) for each in checked for f in each.figures]),
    ]
    write_section(document, SECTION, lines)


def _of_row(checked: Checked) -> dict[str, object]:
    held = sum(each.holds for each in checked.checks)
    return {
        "id": checked.row.number,
        "question": checked.row.question,
        "source": checked.row.source,
        "checks": f"{held} of {len(checked.checks)} hold" + (checked.failed and ", and it failed"),
        "seconds": round(checked.seconds),
    }


def _of_figure(checked: Checked, figure: Measured) -> dict[str, object]:
    asked = None
    if figure.wanted is not None and not checked.quick:
        asked = f"{figure.wanted}: {'seen' if figure.seen else '**not seen**'}"
    return {
        "id": checked.row.number,
        "what": figure.what,
        "over": _times(len(figure.values), figure.over),
        "mean": shown(figure.mean),
        "baseline": figure.baseline or None,
        "lead": None if figure.lead is None else shown(figure.lead, "+"),
        "asked": asked,
    }


def _times(number: int, over: str) -> str:
    return f"{number} {over if number > 1 else over.removesuffix('s')}"


def draw(checked: Sequence[Checked], picture: Path) -> None:
    """Every lead over its baseline with its interval, in one picture; losses are turned round, so
    that what lies to the right is better."""
    leads = [
        (f"{each.row.number}  {figure.what} less {figure.baseline}", _better(figure))
        for each in checked
        for figure in each.figures
        if figure.lead is not None
    ]
    drawing = Figure(figsize=(11, 0.22 * len(leads) + 1), layout="constrained")
    axes: Any = drawing.subplots()
    for line, (_, lead) in enumerate(leads):
        half = 0.0 if lead.interval is None else lead.high - lead.mean
        axes.errorbar(lead.mean, line, xerr=half, fmt="o", color="C0", capsize=3, markersize=4)
    axes.axvline(0, color="0.6", linewidth=1)
    axes.set_yticks(range(len(leads)), [name for name, _ in leads], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=0.1)
    axes.grid(alpha=0.3, axis="x")
    FigureCanvasAgg(drawing)
    with atomic_file(picture) as temporary:
        drawing.savefig(temporary, dpi=110, format="png")


def _better(figure: Measured) -> Estimate:
    lead = figure.lead
    assert lead is not None, "only what has a baseline is drawn"
    if "loss" not in figure.what:
        return lead
    return Estimate(-lead.mean, -lead.high, -lead.low, lead.deviation, lead.count)
