"""The page of claims and the reports of studies."""

import json
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.studies.report import (
    RESULT_FILE,
    TOKENS_METRIC,
    report_lines,
    result_dict,
    write_report,
)
from bertwright.studies.study import Study, load_all_studies
from experiments.claims_page import LECTURES, re_evaluate, write_claims


def test_page_has_all_claims_and_their_verdicts(tmp_path: Path) -> None:
    study = Study.load("dropout")
    losses = {"with": [2.0, 2.1, 2.2], "without": [1.0, 1.1, 1.2]}
    results = {
        arm: {seed: {"held-out.masked_loss": loss} for seed, loss in enumerate(values)}
        for arm, values in losses.items()
    }
    write_report(study, results, tmp_path / "dropout")
    write_claims(tmp_path, tmp_path / "claims.md")
    page = (tmp_path / "claims.md").read_text(encoding="utf-8")
    rows = {line.split(" | ")[3]: line for line in page.splitlines() if line.startswith("| A")}
    assert list(rows) == [study.name for study in load_all_studies()]
    assert "| **seen** | " in rows.pop("dropout")
    assert "Of 1 claims 1 are *seen*; of their 1 parts 1 are *seen*." in page
    assert all("| not run |" in row for row in rows.values())
    assert "| A35, A36, A37 | S4 |" in rows["noising"]
    assert all(f"- {key}: {title}" in page for key, title in LECTURES.items())
    assert "## dropout" in page
    provenance = "`bertwright study run dropout`, on another day and machine."
    file = tmp_path / "dropout" / RESULT_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "provenance": provenance}))
    write_claims(tmp_path, tmp_path / "claims.md")
    assert provenance in (tmp_path / "claims.md").read_text(), "of the run, not of the page"


def test_report_has_the_number_of_real_tokens(tmp_path: Path) -> None:
    study = Study.load("dropout")
    results = {
        arm: {
            seed: {"held-out.masked_loss": 2.0, TOKENS_METRIC: tokens + seed} for seed in range(3)
        }
        for arm, tokens in (("with", 900_000), ("without", 800_000))
    }
    result = write_report(study, results, tmp_path)
    report = "\n".join(report_lines(result))
    cost = "Every arm has had 2e+06 positions, padding included"
    assert f"{cost} (800,000 to 900,002 tokens);" in report
    assert re_evaluate({**result, "equal": "an older text"})["equal"] == "2e+06 positions"
    for by_seed in results.values():
        for metrics in by_seed.values():
            del metrics[TOKENS_METRIC]
    assert f"{cost}; mean" in "\n".join(report_lines(result_dict(study, results)))


def test_folder_without_results_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no results of studies"):
        write_claims(tmp_path, tmp_path / "claims.md")
    assert not (tmp_path / "claims.md").exists()
