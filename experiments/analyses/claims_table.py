"""The page of analyses: a table for every model, from the stored claims."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.markdown_sections import write_section
from bertwright.analysis.core.claims import ClaimResult
from bertwright.analysis.core.runner import select_analyses
from bertwright.core.errors import UserError
from bertwright.runtime.markdown_report import format_value, markdown_table
from experiments.analyses.stored_claims import read_claims

COLUMNS = {
    "id": "",
    "analysis": "analysis",
    "claim": "claim",
    "published": "published",
    "value": "value",
    "baseline": "baseline",
    "verdict": "verdict",
}


def write_claim_tables(folder: Path, document: Path) -> None:
    """Write a section for every model in a folder of ``analysis-claims``.

    Errors: UserError for a folder without such files.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UserError(f"{folder} has no claims of analyses: run analysis-claims first")
    for file in files:
        stored = json.loads(file.read_text(encoding="utf-8"))
        text = f"Weights {stored['model_digest']}, {stored['num_texts']:,} texts."
        lines = [f"## {file.stem}", "", text, "", *markdown_table(COLUMNS, _rows(file))]
        write_section(document, f"analyses of {file.stem}", lines, stored["provenance"])


def _rows(file: Path) -> Sequence[dict[str, object]]:
    claims = read_claims(file)
    return [row for name in claims for row in _rows_of_analysis(name, claims[name])]


def _rows_of_analysis(name: str, claims: Sequence[ClaimResult]) -> Iterator[dict[str, object]]:
    (analysis,) = select_analyses([name])
    for claim in claims:
        yield {
            "id": analysis.survey_id,
            "analysis": f"`{name}`",
            "claim": claim.claim,
            "published": claim.published,
            "value": _value_with_interval(claim),
            "baseline": f"{format_value(claim.baseline)} ({claim.baseline_name})",
            "verdict": claim.verdict_text,
        }


def _value_with_interval(claim: ClaimResult) -> str:
    if claim.count is not None:
        return str(claim.count)
    if claim.interval is None:
        return format_value(claim.value)
    return f"{format_value(claim.value)} [{format_value(claim.interval)}]"
