"""The claims that a finished analysis has decided, in one small file for each model."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bertwright import __version__
from bertwright.analysis.core.claims import ClaimResult
from bertwright.analysis.core.result import Count, StoredResult, has_result, read_result
from bertwright.analysis.core.runner import select_analyses
from bertwright.core.errors import UserError
from bertwright.core.files import write_text
from bertwright.runtime.markdown_report import run_provenance

INPUTS = ("model", "model_digest", "num_texts", "texts_digest", "seed", "version")
"""What all analyses of a folder have in common."""


def write_claims(folder: Path, output: Path) -> None:
    """Write the outcomes of all claims in a folder that ``bertwright analyse`` wrote.

    Errors: UserError for a folder without results, of several models or texts, or written by
    another version.
    """
    text = json.dumps(collect_claims(folder), indent=1, allow_nan=False)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, text + "\n")


def collect_claims(folder: Path) -> dict[str, Any]:
    """Return the model, the texts, and the outcomes of all claims by analysis, as plain data."""
    analyses = [a for a in select_analyses([]) if has_result(folder, a.kind_name())]
    results = {a.kind_name(): read_result(folder, a.kind_name()) for a in analyses}
    if not results:
        raise UserError(f"{folder} has no results of analyses: run bertwright analyse -o {folder}")
    return {
        **_common_inputs(folder, results),
        "provenance": run_provenance(),
        "claims": {
            analysis.kind_name(): [
                claim.as_dict() for claim in analysis.check_claims(results[analysis.kind_name()])
            ]
            for analysis in analyses
        },
    }


def read_claims(file: Path) -> dict[str, Sequence[ClaimResult]]:
    """Return the claims of :func:`write_claims` by analysis; their verdicts are computed again."""
    stored = json.loads(file.read_text(encoding="utf-8"))
    return {name: [_claim_result(c) for c in claims] for name, claims in stored["claims"].items()}


def _common_inputs(folder: Path, results: Mapping[str, StoredResult]) -> dict[str, Any]:
    common: dict[str, Any] = {}
    for key in INPUTS:
        values = list(dict.fromkeys(result.metadata[key] for result in results.values()))
        if len(values) > 1:
            names = ", ".join(map(str, values))
            raise UserError(
                f"{folder} has analyses that differ in their {key} ({names}): use a folder for each"
            )
        common[key] = values[0]
    if common["version"] != __version__:
        raise UserError(f"{folder} was written by version {common['version']}: run analyse again")
    return common


def _claim_result(stored: Mapping[str, Any]) -> ClaimResult:
    """Return the claim result of its ``as_dict``; a value that is None was not a number."""
    names = {field.name for field in fields(ClaimResult)} - {"count"}
    values = {name: stored[name] for name in names}
    for key in ("value", "baseline"):
        values[key] = math.nan if values[key] is None else values[key]
    if values["interval"] is not None:
        values["interval"] = tuple(values["interval"])
    if "count" in stored:
        values["count"] = Count(**stored["count"])
    return ClaimResult(**values)
