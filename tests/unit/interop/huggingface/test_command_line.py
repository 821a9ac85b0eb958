"""``bertwright import`` and ``bertwright export``."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.models.saving import load_model
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from stock_models import saved, stock_model


def run(*arguments: str | Path) -> dict:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_pretrained_model_round_trips(tmp_path: Path) -> None:
    stock = saved(stock_model("BertForPreTraining"), tmp_path / "stock")
    imported = run("import", stock, "-o", tmp_path / "ours", "--json")
    assert imported["objectives"] == ["masked", "next-sentence"]
    assert load_model(tmp_path / "ours")[0].vocab_size == imported["vocabulary"]
    exported = run("export", tmp_path / "ours", "-o", tmp_path / "back", "--verify", "--json")
    assert exported["architecture"] == "BertForPreTraining"
    assert exported["max_difference"] < 1e-5


def test_a_fine_tuned_model_round_trips(tmp_path: Path) -> None:
    stock = stock_model("BertForTokenClassification", id2label={0: "O", 1: "B-PER"})
    run("import", saved(stock, tmp_path / "stock"), "-o", tmp_path / "ours", "--json")
    assert load_fine_tuned_model(tmp_path / "ours").task.labels == ("O", "B-PER")
    exported = run("export", tmp_path / "ours", "-o", tmp_path / "back", "--verify", "--json")
    assert exported["architecture"] == "BertForTokenClassification"
    assert exported["max_difference"] < 1e-5


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = saved(stock_model("BertModel"), tmp_path / "stock")
    with pytest.raises(UserError, match="already exists"):
        CliRunner().invoke(app, ["import", str(folder), "-o", str(folder)], catch_exceptions=False)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        run("import", tmp_path / "nowhere", "-o", tmp_path / "ours")
