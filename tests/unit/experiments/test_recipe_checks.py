"""Checks of recipes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.recipes.loading import system_names
from bertwright.training.callbacks.segment_memory import SegmentMemory
from experiments import recipe_checks
from experiments.__main__ import app
from experiments.recipe_checks import RecipeCheck, check_recipes
from experiments.recipe_page import write_recipe_table
from experiments.system_info import read_system_info
from toy_stories import stories


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checks")
    texts = stories(120)
    (folder / "stories.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, WordPieceConfig(vocab_size=120))
    prepare(folder / "stories.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)
    return folder / "data"


def test_every_system_has_a_description() -> None:
    assert all(read_system_info(system).system for system in system_names())


@pytest.mark.full
def test_valid_recipe_passes(data: Path) -> None:
    arguments = ["recipes", "bert", "--data", str(data), "--quick", "--json"]
    result = CliRunner().invoke(app, arguments)
    [check] = json.loads(result.stdout)["recipes"]
    assert result.exit_code == 0
    assert (check["name"], check["system"], check["ok"]) == ("bert-tiny", "A7", True)
    assert check["stock_class"] == "BertForPreTraining"


def test_page_has_a_line_for_each_recipe(tmp_path: Path) -> None:
    page = tmp_path / "recipes.md"
    write_recipe_table(
        [RecipeCheck("roberta-tiny", "A9", True), RecipeCheck("bert-tiny", "A7", True)], page
    )
    lines = [line for line in page.read_text().splitlines() if line.startswith("| A")]
    assert [line.split(" | ")[1] for line in lines] == ["`bert`", "`roberta`"]
    assert "the budget is round(masking rate x tokens)" in lines[1]
    assert "124,697,433" in lines[1]
    check = RecipeCheck("albert-tiny", "A15", True, first_loss=4.0, last_loss=3.5)
    write_recipe_table([check, RecipeCheck("bert-tiny", "A7", False, problem="a fault")], page)
    rows = [line for line in page.read_text().splitlines() if line.startswith("| A")]
    assert [row.split(" | ")[1] for row in rows] == ["`bert`", "`roberta`", "`albert`"]
    assert "a fault" in rows[0]
    assert rows[1] == lines[1]
    assert "4.000, 3.500" in rows[2]


def test_wrong_number_of_parameters_is_detected(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        recipe_checks, "num_parameters_of", lambda system, count: count.parameters + 1
    )
    [check] = check_recipes(["bert"], data, 2)
    assert not check.ok
    assert "must have" in check.problem


def test_faulty_resumption_is_detected(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentMemory, "load", lambda self, state: None)
    [check] = check_recipes(["transformer-xl"], data, 4)
    assert not check.ok
    assert "resumed" in check.problem


def test_unknown_system_raises(data: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'bert'"):
        check_recipes(["berd"], data, 2)
