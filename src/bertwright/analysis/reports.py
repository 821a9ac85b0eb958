"""One page for all that was found of a model; it needs nothing but itself to be read."""

import base64
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from bertwright.analysis.analysis import Case
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.running import AGAINST, Answered
from bertwright.document import table, write_section
from bertwright.files import write_text

PAGE = "report.html"


def write_report(case: Case, answered: Sequence[Answered], out: Path, made: str) -> Path:
    """Write ``report.html`` beside the files of the analyses; ``made`` says when and where."""
    template = resources.files("bertwright.analysis").joinpath(PAGE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"short": _short, "figure": _figure}
    page = environment.from_string(template).render(
        subject=case.subject,
        other=case.other,
        beside=AGAINST,
        num_texts=len(case.texts),
        seed=case.seed,
        told=[own for own in answered if own.lacks is None],
        lacking=[own for own in answered if own.lacks is not None],
        pictures={own.analysis.own_kind(): _picture(own, out) for own in answered},
        made=made,
    )
    write_text(out / PAGE, page)
    return out / PAGE


def write_findings(case: Case, answered: Sequence[Answered], document: Path) -> None:
    """Write the table of findings into a Markdown document, a section a model."""
    rows: list[dict[str, object]] = []
    for own in answered:
        for each in own.conclusions:
            there = own.beside(each.claim)
            rows.append(
                {
                    "id": own.analysis.number,
                    "claim": each.claim,
                    "published": each.published,
                    "here": _figure(each),
                    "held": f"{_short(each.baseline)} ({each.baseline_name})",
                    "verdict": each.told,
                    "there": None if there is None else f"{_figure(there)}: {there.told}",
                }
            )
        if own.lacks is not None:
            lacking = {"claim": own.analysis.question, "verdict": "not testable", "here": own.lacks}
            rows.append({"id": own.analysis.number, **lacking})
    columns = {
        "id": "",
        "claim": "claim",
        "published": "published",
        "here": case.subject.name,
        "held": "to be held against",
        "verdict": "verdict",
        "there": "" if case.other is None else case.other.name,
    }
    subject = case.subject
    heading = f"{subject.size}, {len(case.texts)} texts, weights {subject.digest}."
    lines = [f"## {subject.name}", "", heading, "", *table(columns, rows)]
    for shown in (each for own in answered for each in own.tables):
        lines += ["", shown.heading, "", *table(dict(shown.columns), shown.rows)]
    write_section(document, f"inside {subject.name}", lines)


def _figure(each: Conclusion) -> str:
    inside = each.interval
    span = "" if inside is None else f" [{_short(inside[0])}, {_short(inside[1])}]"
    return f"{_short(each.value)}{span}"


def _picture(answered: Answered, out: Path) -> str:
    file = out / f"{answered.analysis.own_kind()}.png"
    if answered.lacks is not None or not file.is_file():
        return ""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()


def _short(value: float) -> str:
    return f"{value:.3g}"
