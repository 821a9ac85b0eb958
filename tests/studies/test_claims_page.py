"""The page of claims names every study, and what became of those that have run."""

import json
from pathlib import Path

import pytest

from bertwright.errors import UserError
from bertwright.studies.claims_page import write_claims
from bertwright.studies.lectures import LECTURES
from bertwright.studies.report import RESULT, TOKENS, as_dict, judged_anew, lines, write_report
from bertwright.studies.study import Study, all_studies


def test_every_claim_has_a_row_and_a_verdict_where_it_has_run(tmp_path: Path) -> None:
    study = Study.load("dropout")
    losses = {"with": [2.0, 2.1, 2.2], "without": [1.0, 1.1, 1.2]}
    found = {
        arm: {seed: {"held-out.masked_loss": loss} for seed, loss in enumerate(own)}
        for arm, own in losses.items()
    }
    write_report(study, found, tmp_path / "dropout")
    write_claims(tmp_path, tmp_path / "claims.md")
    page = (tmp_path / "claims.md").read_text(encoding="utf-8")
    rows = {line.split(" | ")[3]: line for line in page.splitlines() if line.startswith("| A")}
    assert list(rows) == [study.name for study in all_studies()]
    assert "**seen** (1 of 1 parts seen)" in rows.pop("dropout")
    assert all("| not run |" in row for row in rows.values())
    assert "| A35, A36, A37 | S4 |" in rows["noising"]
    assert all(f"- {key}: {title}" in page for key, title in LECTURES.items())
    assert "## dropout" in page
    origin = "`bertwright study run dropout`, a day and a machine before."
    result = json.loads((tmp_path / "dropout" / RESULT).read_text())
    (tmp_path / "dropout" / RESULT).write_text(json.dumps({**result, "origin": origin}))
    write_claims(tmp_path, tmp_path / "claims.md")
    assert origin in (tmp_path / "claims.md").read_text(), "of the run, not of the page"


def test_equal_places_are_told_with_the_tokens_that_they_held(tmp_path: Path) -> None:
    study = Study.load("dropout")
    found = {
        arm: {seed: {"held-out.masked_loss": 2.0, TOKENS: tokens + seed} for seed in range(3)}
        for arm, tokens in (("with", 900_000), ("without", 800_000))
    }
    result = write_report(study, found, tmp_path)
    told = "\n".join(lines(result))
    assert "Every arm has had 1e+06 places, padding included (800,000 to 900,002 tokens);" in told
    assert judged_anew({**result, "equal": "as it was told before"})["equal"] == "1e+06 places"
    for own in found.values():
        for figures in own.values():
            del figures[TOKENS]
    assert "1e+06 places, padding included; mean" in "\n".join(lines(as_dict(study, found)))


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no results"):
        write_claims(tmp_path, tmp_path / "claims.md")
    assert not (tmp_path / "claims.md").exists()
