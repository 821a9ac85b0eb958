"""``bertwright generate``: sources of prompts, output and mistakes."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from commands import invoke
from small_tasks import ENGLISH
from toy_recipes import toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of three models and of prompt files."""
    folder = tmp_path_factory.mktemp("generate")
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    for system in ("gpt", "bert", "electra"):
        TextModel(Model.build(toy(system), tokenizer.vocab_size), tokenizer).save(folder / system)
    (folder / "prompts.jsonl").write_text('{"prompt": "The red"}\n\n{"prompt": "A tree"}\n')
    (folder / "prompts.txt").write_text("The red\nA tree\n")
    (folder / "wrong.jsonl").write_text('{"text": "The red"}\n')
    return folder


def generate(*words: object, stdin: str | None = None) -> Result:
    return invoke("generate", *words, "--max-new-tokens", 5, stdin=stdin)


def test_prompts_come_from_arguments_a_file_or_standard_input(folder: Path) -> None:
    model = folder / "gpt"
    texts = generate(model, "The red", "A tree").stdout
    assert [line[:6] for line in texts.splitlines()] == ["The re", "A tree"]
    assert generate(model, "--file", folder / "prompts.jsonl").stdout == texts
    assert generate(model, "--file", folder / "prompts.txt").stdout == texts
    assert generate(model, stdin="The red\nA tree\n").stdout == texts
    lines = (folder / "prompts.jsonl").read_text()
    assert generate(model, "-", "--jsonl", stdin=lines).stdout == texts
    both = generate(model, "-", "--jsonl", "--file", folder / "prompts.txt", stdin=lines).stdout
    assert both == texts + texts


def test_json_output_has_a_line_per_text(folder: Path) -> None:
    printed = generate(folder / "gpt", "The red", "A tree", "--num-samples", 2, "--json").stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    keys = {"prompt", "text", "sample", "finish_reason", "tokens", "log_probability"}
    assert {frozenset(line) for line in lines} == {frozenset(keys)}
    assert [(line["prompt"], line["sample"]) for line in lines] == [
        (prompt, sample) for prompt in ("The red", "A tree") for sample in (0, 1)
    ]


def test_slow_generation_is_a_warning(folder: Path) -> None:
    assert "this is slow" in generate(folder / "bert", "The red", "--sweeps", 2).stderr
    assert "slow" not in generate(folder / "gpt", "The red").stderr


def test_texts_that_reach_the_maximum_length_are_counted(folder: Path) -> None:
    warning = generate(folder / "gpt", "tree " * 510, "The red", "--num-samples", 2).stderr
    assert warning == "bertwright: 2 texts ended at the maximum length of the model\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gpt", "a", "--temperature", "-1"), "generate: temperature: must be 0"),
        (("gpt", "--file", "wrong.jsonl"), 'line 1: expected {"prompt": "a text"}'),
        (("gpt", "tree " * 600), "exceeds the model's maximum of 512"),
        (
            ("electra", "a"),
            r"electra cannot generate with its objectives \(replaced-token, generated\)",
        ),
        (("gpt", "a", "--objective", "masked"), "has no objective 'masked'"),
        (("gpt", "--file", "prompts.txt", "--jsonl"), "no standard input is read: leave --jsonl"),
    ],
)
def test_a_mistake_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message):
        generate(*words)
