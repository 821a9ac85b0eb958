"""The outcomes of checks as tables of a document, and as a plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.markdown_sections import write_section
from bertwright.core.files import atomic_file
from bertwright.core.statistics import Estimate
from bertwright.runtime.markdown_report import markdown_table
from experiments.compressions.check import CheckOutcome, MeasuredValue, format_estimate
from experiments.compressions.checks import sort_key

SECTION = "checks of compression"

CHECK_COLUMNS = {
    "id": "row",
    "question": "question",
    "source": "source",
    "checks": "exact checks",
    "seconds": "seconds",
}
VALUE_COLUMNS = {
    "id": "row",
    "name": "value",
    "unit": "over",
    "mean": "mean",
    "baseline": "less",
    "lead": "lead",
    "expected": "expected",
}
"""Column titles of the two tables, by key."""


def write_checks(outcomes: Sequence[CheckOutcome], document: Path) -> None:
    """Write both tables."""
    # Timed checks run last, and are sorted in.
    outcomes = sorted(outcomes, key=lambda outcome: sort_key(outcome.check))
    note = "These are from a quick check, with hardly any training." if outcomes[0].is_quick else ""
    lines = [
        "A toy of four blocks 64 wide: it shows that machinery and signs are right, and is no "
        "evidence for published results. Means with intervals of 95 %, differences pair by pair. "
        + note,
        "",
        *markdown_table(CHECK_COLUMNS, [_check_row(outcome) for outcome in outcomes]),
        "",
        *markdown_table(
            VALUE_COLUMNS, [_value_row(o, value) for o in outcomes for value in o.values]
        ),
    ]
    write_section(document, SECTION, lines)


def _check_row(outcome: CheckOutcome) -> dict[str, object]:
    num_met = sum(check.is_met for check in outcome.checks)
    return {
        "id": outcome.check.number,
        "question": outcome.check.hypothesis,
        "source": outcome.check.source,
        "checks": f"{num_met} of {len(outcome.checks)} hold"
        + (outcome.error and ", and it failed"),
        "seconds": round(outcome.seconds),
    }


def _value_row(outcome: CheckOutcome, value: MeasuredValue) -> dict[str, object]:
    expected = None
    if value.verdict is not None and not outcome.is_quick:
        expected = f"{value.expected_side}: **{value.verdict.text(value.unit)}**"
        if value.negligible is not None:
            expected += f" (negligible: {value.negligible:g})"
    return {
        "id": outcome.check.number,
        "name": value.name,
        "unit": _count_units(len(value.values), value.unit),
        "mean": format_estimate(value.mean),
        "baseline": value.baseline or None,
        "lead": None if value.lead is None else format_estimate(value.lead, "+"),
        "expected": expected,
    }


def _count_units(count: int, unit: str) -> str:
    return f"{count} {unit if count > 1 else unit.removesuffix('s')}"


def plot(outcomes: Sequence[CheckOutcome], path: Path) -> None:
    """Plot every lead over its baseline with its interval; losses are negated, so that right is
    better."""
    leads = [
        (
            f"{outcome.check.number}  {value.name} less {value.baseline}",
            _lead_if_higher_is_better(value),
        )
        for outcome in outcomes
        for value in outcome.values
        if value.lead is not None
    ]
    figure = Figure(figsize=(11, 0.22 * len(leads) + 1), layout="constrained")
    axes: Any = figure.subplots()
    for line, (_, lead) in enumerate(leads):
        half = 0.0 if lead.interval is None else lead.high - lead.mean
        axes.errorbar(lead.mean, line, xerr=half, fmt="o", color="C0", capsize=3, markersize=4)
    axes.axvline(0, color="0.6", linewidth=1)
    axes.set_yticks(range(len(leads)), [name for name, _ in leads], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=0.1)
    axes.grid(alpha=0.3, axis="x")
    FigureCanvasAgg(figure)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def _lead_if_higher_is_better(value: MeasuredValue) -> Estimate:
    lead = value.lead
    assert lead is not None, "only values with a baseline are plotted"
    if "loss" not in value.name:
        return lead
    return Estimate(-lead.mean, -lead.high, -lead.low, lead.standard_deviation, lead.num_values)
