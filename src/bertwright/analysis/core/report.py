"""A self-contained HTML page with the results of all analyses."""

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.runner import OTHER_MODEL_FOLDER, AnalysisReport
from bertwright.core.files import write_text
from bertwright.core.pages import read_page_file, shared_style

PAGE_NAME = "report.html"


def write_report(
    inputs: AnalysisInput, reports: Sequence[AnalysisReport], output: Path, provenance: str
) -> Path:
    """Write ``report.html`` into ``output``; ``provenance`` states time and machine."""
    template = read_page_file("bertwright.analysis.core", PAGE_NAME)
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    page = environment.from_string(template).render(
        model=inputs.model,
        other_model=inputs.other_model,
        other_model_folder=OTHER_MODEL_FOLDER,
        num_texts=len(inputs.texts),
        seed=inputs.seed,
        applicable=[report for report in reports if report.not_applicable is None],
        not_applicable=[report for report in reports if report.not_applicable is not None],
        style=shared_style(),
        descriptions={
            report.analysis.kind_name(): _first_sentences(report.analysis) for report in reports
        },
        plots={report.analysis.kind_name(): _embedded_image(report, output) for report in reports},
        provenance=provenance,
    )
    write_text(output / PAGE_NAME, page)
    return output / PAGE_NAME


def _first_sentences(analysis: Analysis) -> str:
    """Return what an analysis measures: the first paragraph of its docstring."""
    paragraph = (type(analysis).__doc__ or analysis.title).strip().split("\n\n")[0]
    return " ".join(paragraph.replace("``", "").split())


def _embedded_image(report: AnalysisReport, output: Path) -> str:
    file = output / f"{report.analysis.kind_name()}.png"
    if report.not_applicable is not None or not file.is_file():
        return ""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()
