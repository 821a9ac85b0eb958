"""A self-contained HTML page with the results of all analyses."""

import base64
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.claims import ClaimResult
from bertwright.analysis.core.runner import OTHER_MODEL_FOLDER, AnalysisReport
from bertwright.core.files import write_text

PAGE_NAME = "report.html"


def write_report(
    inputs: AnalysisInput, reports: Sequence[AnalysisReport], output: Path, provenance: str
) -> Path:
    """Write ``report.html`` into ``output``; ``provenance`` states time and machine."""
    template = (
        resources.files("bertwright.analysis.core").joinpath(PAGE_NAME).read_text(encoding="utf-8")
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"number": _format_number, "value": _format_value}
    page = environment.from_string(template).render(
        model=inputs.model,
        other_model=inputs.other_model,
        other_model_folder=OTHER_MODEL_FOLDER,
        num_texts=len(inputs.texts),
        seed=inputs.seed,
        applicable=[report for report in reports if report.not_applicable is None],
        not_applicable=[report for report in reports if report.not_applicable is not None],
        plots={report.analysis.kind_name(): _embedded_image(report, output) for report in reports},
        provenance=provenance,
    )
    write_text(output / PAGE_NAME, page)
    return output / PAGE_NAME


def _format_value(claim_result: ClaimResult) -> str:
    value, interval = _format_number(claim_result.value), claim_result.interval
    if interval is None:
        return value
    return f"{value} [{_format_number(interval[0])}, {_format_number(interval[1])}]"


def _embedded_image(report: AnalysisReport, output: Path) -> str:
    file = output / f"{report.analysis.kind_name()}.png"
    if report.not_applicable is not None or not file.is_file():
        return ""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()


def _format_number(value: float) -> str:
    return f"{value:.3g}"
