"""``bertwright generate``: prompts from wherever they come, texts in their order."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generating")
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    for system in ("gpt", "bert", "electra"):
        TextModel(Model.build(toy(system), tokenizer.size), tokenizer).save(folder / system)
    (folder / "prompts.jsonl").write_text('{"prompt": "The red"}\n\n{"prompt": "A tree"}\n')
    (folder / "prompts.txt").write_text("The red\nA tree\n")
    (folder / "wrong.jsonl").write_text('{"text": "The red"}\n')
    return folder


def invoke(*words: object, given: str | None = None) -> Result:
    command = ["generate", *map(str, words), "--max-new-tokens", "5"]
    result = CliRunner().invoke(app, command, input=given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_prompts_come_from_the_command_a_file_and_standard_input(folder: Path) -> None:
    model = folder / "gpt"
    texts = invoke(model, "The red", "A tree").stdout
    assert [line[:6] for line in texts.splitlines()] == ["The re", "A tree"]
    assert invoke(model, "--file", folder / "prompts.jsonl").stdout == texts
    assert invoke(model, "--file", folder / "prompts.txt").stdout == texts
    assert invoke(model, given="The red\nA tree\n").stdout == texts
    rows = (folder / "prompts.jsonl").read_text()
    assert invoke(model, "-", "--jsonl", given=rows).stdout == texts
    both = invoke(model, "-", "--jsonl", "--file", folder / "prompts.txt", given=rows).stdout
    assert both == texts + texts


def test_every_text_is_a_line_of_json(folder: Path) -> None:
    said = invoke(folder / "gpt", "The red", "A tree", "--num-samples", 2, "--json").stdout
    lines = [json.loads(line) for line in said.splitlines()]
    keys = {"prompt", "text", "sample", "stopped", "tokens", "log_probability"}
    assert {frozenset(line) for line in lines} == {frozenset(keys)}
    assert [(line["prompt"], line["sample"]) for line in lines] == [
        (prompt, sample) for prompt in ("The red", "A tree") for sample in (0, 1)
    ]


def test_what_is_slow_is_said_on_standard_error(folder: Path) -> None:
    assert "this is slow" in invoke(folder / "bert", "The red", "--sweeps", 2).stderr
    assert "slow" not in invoke(folder / "gpt", "The red").stderr


def test_what_ends_for_want_of_room_is_counted_on_standard_error(folder: Path) -> None:
    told = invoke(folder / "gpt", "tree " * 510, "The red", "--num-samples", 2).stderr
    assert told == "bertwright: 2 of the texts ended where the model can read no more\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gpt", "a", "--temperature", "-1"), "generate: temperature: must be 0"),
        (("gpt", "--file", "wrong.jsonl"), 'line 1: expected {"prompt": "a text"}'),
        (("gpt", "tree " * 600), "is longer than the 512 that the model reads"),
        (("electra", "a"), "electra cannot generate: it asks replaced-token, generated"),
        (("gpt", "a", "--by", "masked"), "asks no question 'masked'"),
        (("gpt", "--file", "prompts.txt", "--jsonl"), "no standard input is read: leave --jsonl"),
    ],
)
def test_a_mistake_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message):
        invoke(*words)
