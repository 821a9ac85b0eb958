"""Claims of a finished analysis, collected into one file."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bertwright import __version__
from bertwright.analysis.core.claims import ClaimResult
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    write_result,
)
from bertwright.core.errors import UserError
from experiments.analyses.claims_table import write_claim_tables
from experiments.analyses.stored_claims import read_claims, write_claims
from experiments.lectures.lines import LectureLine
from experiments.lectures.results import StoredResults

INPUTS = {
    "model": "toy",
    "model_digest": "ab",
    "num_texts": 30,
    "texts_digest": "cd",
    "seed": 0,
    "version": __version__,
}
NARROWER = "entropy, first half minus second half"


def store(folder: Path, value: float, name: str = "attention-entropy", **inputs: Any) -> None:
    """Write the result of an analysis with one claim: heads become narrower with depth."""
    interval = None if math.isnan(value) else (value - 0.1, value + 0.1)
    finding = AnalysisFinding(
        NARROWER, value, interval=interval, num_units=30, baseline=BaselineValue("none", 0.0)
    )
    write_result(folder, name, {**INPUTS, **inputs}, AnalysisResult([finding]))


@pytest.mark.parametrize(
    ("value", "label"),
    [(0.5, "seen"), (-0.5, "opposite"), (0.0, "undecided"), (math.nan, "invalid design")],
)
def test_collected_claims_have_the_verdicts_of_the_analysis(
    tmp_path: Path, value: float, label: str
) -> None:
    store(tmp_path / "inside", value)
    file = tmp_path / "results" / "analyses" / "toy.json"
    write_claims(tmp_path / "inside", file)
    ((claim,),) = read_claims(file).values()
    assert isinstance(claim, ClaimResult)
    assert claim.verdict == label
    assert claim.value == pytest.approx(value, nan_ok=True)
    stored = json.loads(file.read_text())
    assert {key: stored[key] for key in INPUTS} == INPUTS
    assert "torch" in stored["provenance"]
    line = LectureLine(what="entropy", analysis=("attention-entropy",))
    results = StoredResults(tmp_path / "results")
    assert results.text(line) == f"`attention-entropy` toy 1 {label}"
    assert results.claim_labels([line])["analyses"] == {label: 1}


def test_folders_that_cannot_be_collected_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "toy.json"
    with pytest.raises(UserError, match="has no results of analyses"):
        write_claims(tmp_path, file)
    store(tmp_path / "old", 0.5, version="0.0")
    with pytest.raises(UserError, match=r"was written by version 0\.0: run analyse again"):
        write_claims(tmp_path / "old", file)
    store(tmp_path / "two", 0.5)
    store(tmp_path / "two", 0.5, "token-mixing", model="other")
    with pytest.raises(UserError, match=r"differ in their model \(toy, other\)"):
        write_claims(tmp_path / "two", file)
    assert not file.exists()


def test_the_page_has_a_table_of_every_model(tmp_path: Path) -> None:
    for model, value in {"small": 0.5, "large": math.nan}.items():
        store(tmp_path / model, value)
        write_claims(tmp_path / model, tmp_path / f"analyses/{model}.json")
    for _ in range(2):
        write_claim_tables(tmp_path / "analyses", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert page.count("## small") == page.count("## large") == 1
    small = page.partition("## small")[2].partition("end of")[0]
    assert "| 0.5 [0.4, 0.6] | 0 (" in small
    assert ") | seen |" in small
    with pytest.raises(UserError, match="run analysis-claims first"):
        write_claim_tables(tmp_path / "nothing", tmp_path / "page.md")
