"""``recipes check`` finds what it is there to find."""

import json
from pathlib import Path

import pytest
from toy_stories import stories
from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.recipes.about import about
from bertwright.recipes.loading import systems
from bertwright.studies import recipe_checks
from bertwright.studies.recipe_checks import Check, check_all
from bertwright.studies.recipe_page import write_recipes
from bertwright.text.preparation import prepare
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from bertwright.training.stream_memory import StreamMemory


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checks")
    texts = stories(120)
    (folder / "stories.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, WordPieceChoice(size=120))
    prepare(folder / "stories.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)
    return folder / "data"


def test_every_system_says_what_it_is() -> None:
    assert all(about(system).system for system in systems())


def test_a_recipe_that_keeps_its_promises(data: Path) -> None:
    arguments = ["recipes", "check", "bert", "--data", str(data), "--quick", "--json"]
    result = CliRunner().invoke(app, arguments)
    [check] = json.loads(result.stdout)["recipes"]
    assert result.exit_code == 0
    assert (check["name"], check["system"], check["ok"]) == ("bert-tiny", "A7", True)
    assert check["export"] == "BertForPreTraining"


def test_the_page_of_recipes_has_a_line_for_each(tmp_path: Path) -> None:
    page = tmp_path / "recipes.md"
    write_recipes([Check("roberta-tiny", "A9", True), Check("bert-tiny", "A7", True)], page)
    lines = [line for line in page.read_text().splitlines() if line.startswith("| A")]
    assert [line.split(" | ")[1] for line in lines] == ["`bert`", "`roberta`"]
    assert "the budget is round(rate x places)" in lines[1]
    assert "124,697,433" in lines[1]


def test_a_wrong_number_of_parameters_is_a_miss(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_checks, "counted", lambda system, count: count.parameters + 1)
    [check] = check_all(["bert"], data, 2)
    assert not check.ok
    assert "must have" in check.wrong


def test_a_run_that_does_not_resume_is_a_miss(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamMemory, "load", lambda self, state: None)
    [check] = check_all(["transformer-xl"], data, 4)
    assert not check.ok
    assert "resumed" in check.wrong


def test_a_system_that_is_not_there(data: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'bert'"):
        check_all(["berd"], data, 2)
