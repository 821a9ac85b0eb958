"""One page for all that was found of a model; it needs nothing but itself to be read."""

import base64
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from bertwright.analysis.analysis import Case
from bertwright.analysis.running import AGAINST, Answered
from bertwright.files import write_text

PAGE = "report.html"


def write_report(case: Case, answered: Sequence[Answered], out: Path, made: str) -> Path:
    """Write ``report.html`` beside the files of the analyses; ``made`` says when and where."""
    template = resources.files("bertwright.analysis").joinpath(PAGE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["short"] = _short
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


def _picture(answered: Answered, out: Path) -> str:
    file = out / f"{answered.analysis.own_kind()}.png"
    if answered.lacks is not None or not file.is_file():
        return ""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()


def _short(value: float) -> str:
    return f"{value:.3g}"
