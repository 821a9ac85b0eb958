"""analyse from a shell: a model is asked, and analyses are."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bertwright.analysis import checking
from bertwright.analysis.analysis import Analysis
from bertwright.analysis.planted.expecting import Expected, same
from bertwright.analysis.planted.models import SENTENCES, small_case, small_subject
from bertwright.cli.application import app
from bertwright.errors import UserError


def invoke(*words: Any) -> Result:
    return CliRunner().invoke(app, ["analyse", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and texts."""
    folder = tmp_path_factory.mktemp("analyse")
    small_subject().text_model.save(folder / "model")
    (folder / "texts.txt").write_text("\n".join(SENTENCES))
    return folder


def test_a_model_is_asked_and_held_against_another(folder: Path, tmp_path: Path) -> None:
    options = ("--data", folder / "texts.txt", "-o", tmp_path / "found", "--json")
    result = invoke(
        folder / "model", "B4", "malformed-input", "--against", folder / "model", *options
    )
    entropy, malformed = json.loads(result.stdout)["analyses"]
    assert entropy["id"] == "B4"
    assert entropy["against"]["conclusions"] == entropy["conclusions"]
    assert "not_applicable" in malformed
    assert (tmp_path / "found" / "attention-entropy.jsonl").is_file()
    assert Path(json.loads(result.stdout)["page"]).is_file()


def test_heads_that_stay_are_written(folder: Path, tmp_path: Path) -> None:
    options = ("--data", folder / "texts.txt", "-o", tmp_path / "found", "--prune-to", "0.5")
    refused = invoke(folder / "model", "attention-shares", *options)
    assert isinstance(refused.exception, UserError)
    assert "head-importance" in str(refused.exception)
    assert not (tmp_path / "found").exists()
    assert invoke(folder / "model", "head-importance", *options).exit_code == 0
    kept = json.loads((tmp_path / "found" / "kept.json").read_text())
    assert sum(map(len, kept["heads"])) == 4


def test_without_a_model_what_can_be_asked_is_listed() -> None:
    known = json.loads(invoke("--json").stdout)["analyses"]
    assert {own["analysis"] for own in known} == set(Analysis.kinds())
    assert all(own["question"] in invoke().stdout for own in known)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model in the place of one that is trained."""
    monkeypatch.setattr(checking, "toy_cases", lambda *_: [small_case()])


@pytest.mark.usefixtures("toy")
def test_a_check_tells_what_holds_and_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def missed() -> Iterator[Expected]:
        yield same("the answer", 41, 42)

    result = invoke("--check", "--quick", "attention-shares")
    assert (result.exit_code, "expectations hold" in result.stdout) == (0, True)
    monkeypatch.setattr(checking, "PLANTED", {"attention-shares": missed})
    result = invoke("--check", "--quick", "attention-shares", "attention-entropy", "--json")
    shares, entropy = json.loads(result.stdout)["analyses"]
    assert result.exit_code == 1
    assert (shares["id"], shares["ok"], entropy["ok"]) == ("B2", False, True)
    assert shares["wrong"] == ["the answer: 41 for 42: 0, not in [1, 1]"]


@pytest.mark.usefixtures("toy")
def test_what_cannot_be_asked_of_the_toy_is_a_miss() -> None:
    result = invoke("--check", "--quick", "relation-heads")
    assert result.exit_code == 1
    assert "says nothing of the toy" in result.stdout
