"""``bertwright tokenizer train`` and ``bertwright prepare`` on the command line."""

import json
import sys
from pathlib import Path

import pytest

from bertwright.cli import app as application
from bertwright.data.shards.dataset import Dataset

TEXT = "\n\n".join(f"Story {i}. The keeper counted {i} ships. He slept." for i in range(40))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Return the exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["bertwright", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        application.main()
    return int(ended.value.code or 0)


def test_a_tokenizer_is_trained_and_text_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, tokenizer, data = tmp_path / "a.txt", tmp_path / "tokenizer", tmp_path / "data"
    text.write_text(TEXT)
    train = ("tokenizer", "train", text, "-o", tokenizer, "--vocab-size", "300", "--lowercase")
    assert run(monkeypatch, *train, "--json") == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["kind"] == "wordpiece"
    assert trained["size"] <= 300
    prepare = ("prepare", text, "-o", data, "--tokenizer", tokenizer, "--num-workers", "1")
    assert run(monkeypatch, *prepare, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["documents"] == 40
    assert Dataset.open(data).tokenizer.hash == trained["hash"]
    assert run(monkeypatch, *prepare) == 2
    assert capsys.readouterr().err.startswith(f"bertwright: {data} already exists")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["tokenizer", "train", "x", "-o", "y", "--kind", "word-piece"],
            "did you mean 'wordpiece'",
        ),
        (
            ["tokenizer", "train", "x", "-o", "y", "--vocab-size", "2"],
            "tokenizer: vocab_size: must be 6 or more",
        ),
        (["tokenizer", "train", "x", "-o", "y"], "x: there is no such file or folder"),
        (["prepare", "x", "-o", "y", "--tokenizer", "z"], "no folder z"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "y").exists()


def test_an_unreachable_held_out_fraction_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A twentieth of two documents of one sentence each cannot be held out."""
    text, tokenizer = tmp_path / "a.txt", tmp_path / "tokenizer"
    text.write_text(TEXT)
    assert run(monkeypatch, "tokenizer", "train", text, "-o", tokenizer, "--vocab-size", "300") == 0
    short = tmp_path / "b.txt"
    short.write_text("the keeper counted ships\n\nhe counted stories of the keeper")
    options = ("--tokenizer", tokenizer, "--num-workers", "1")
    assert run(monkeypatch, "prepare", short, "-o", tmp_path / "short", *options) == 0
    warning = capsys.readouterr().err
    assert warning.startswith("warning: ")
    assert "instead of 5.0%" in warning
    assert run(monkeypatch, "prepare", text, "-o", tmp_path / "long", *options) == 0
    assert not capsys.readouterr().err
