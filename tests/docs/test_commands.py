"""The commands and the Python of README and docs run in order.

Sizes and times in ``TOY_SIZES`` are replaced, and models are evaluated on less text. Commands of
make are checked by ``test_links.py``, which looks up the targets.
"""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertwright.cli.app import app
from checkout import CHECKOUT
from registrations import temporary_registrations
from short_runs import shorten
from stock_models import saved, stock_model

DOCUMENTS = sorted([CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md")])
CODE_BLOCK = re.compile(r"^```(bash|console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)

FEW_STEPS = ("steps=2", "batch_tokens=256", "phases=[{length: 64}]", "compile=false")
TOY_SIZES = {
    "--vocab-size 8192": "--vocab-size 300",
    "doctor data modern-mini": "doctor data modern-mini --quick",
    "pretrain modern-mini": "pretrain modern-tiny",
    "--budget 20m": shlex.join(FEW_STEPS),
    "--seeds 3": "--seeds 2 epochs=1",
    "--budget 10m": "--seeds 1 --budget 1s",
    '"steps=2000"': ", ".join(f'"{override}"' for override in FEW_STEPS),
}
"""Replacements that make a command fast."""

PREPARE_DATA = """
bertwright tokenizer train text -o tokenizer --vocab-size 300 --lowercase
bertwright prepare text -o data --tokenizer tokenizer
"""
"""What a page that reads prepared data, but does not say how to make it, needs first."""

ADJECTIVES = ("good", "fine", "bad", "poor")

ALLOWED_EXIT_CODES = {"doctor": {0, 1}}
"""Exit codes other than 0: doctor warns of text as small as this."""


def code_blocks(document: Path) -> list[tuple[str, str]]:
    """Return (language, code) of every block to run, at toy size."""
    text = document.read_text(encoding="utf-8")
    blocks = CODE_BLOCK.findall(text)
    if "--data data " in text and "-o data " not in text:
        blocks.insert(0, ("bash", PREPARE_DATA))
    return [(language, _at_toy_size(code)) for language, code in blocks]


def is_read_first(document: Path) -> bool:
    """Return whether a document is the README or a tutorial."""
    return document.name == "README.md" or document.parent.name == "tutorials"


def _at_toy_size(code: str) -> str:
    for written, replacement in TOY_SIZES.items():
        code = code.replace(written, replacement)
    return code


def commands(language: str, code: str) -> list[list[str]]:
    """Return the words of every bertwright command; in a console block, of lines after ``$``."""
    lines = code.replace("\\\n", " ").splitlines()
    if language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    words = [shlex.split(line, comments=True) for line in lines]
    return [command for command in words if command and command[0] == "bertwright"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary_plugins: None) -> Path:
    """Return a working folder with the files that the documents read."""
    (tmp_path / "text").mkdir()
    for number, document in enumerate(DOCUMENTS):
        prose = re.sub(r"[|`#*<>\[\]]+", " ", document.read_text(encoding="utf-8"))
        (tmp_path / "text" / f"{number}.txt").write_text(prose, encoding="utf-8")
    good, fine, bad, poor = ADJECTIVES
    positive = [f"the {noun} is {word}" for noun in ("ship", "lamp") for word in (good, fine)]
    negative = [f"the {noun} is {word}" for noun in ("ship", "lamp") for word in (bad, poor)]
    rows = [*(f"{text}\t5" for text in positive), *(f"{text}\t1" for text in negative)]
    (tmp_path / "reviews.tsv").write_text("\n".join(["review\tstars", *rows, *rows]) + "\n")
    for name in ("texts.txt", "reviews.txt"):
        (tmp_path / name).write_text("\n".join([*positive, *negative]) + "\n")
    pair = {"sentence_good": "the ships come", "sentence_bad": "the ships comes", "UID": "s"}
    (tmp_path / "pairs.jsonl").write_text(f"{json.dumps(pair)}\n")
    turns = [
        {"speaker": speaker, "text": f"the {noun} is {word}"}
        for speaker, noun, word in zip("abab", ("ship", "lamp") * 2, ADJECTIVES, strict=True)
    ]
    (tmp_path / "dialogues.jsonl").write_text(f"{json.dumps({'dialogue': turns})}\n" * 20)
    (tmp_path / "phrases.txt").write_text("held-out text\nAdam\tperson\n")
    (tmp_path / "english.txt").write_text(f"{'the ship is good ' * 12}\n\n" * 60)
    (tmp_path / "german.txt").write_text(f"{'das schiff ist gut ' * 12}\n\n" * 60)
    views = [f"u{user},film {(user * n) % 23},{n}" for user in range(1, 9) for n in range(1, 8)]
    (tmp_path / "watched.csv").write_text("\n".join(["user,film,time", *views]) + "\n")
    for example in (CHECKOUT / "docs" / "examples").iterdir():
        copy = shutil.copytree if example.is_dir() else shutil.copy
        copy(example, tmp_path / example.name)
    monkeypatch.syspath_prepend(tmp_path)
    shorten(monkeypatch)
    saved(
        stock_model("BertForMaskedLM", max_position_embeddings=64), tmp_path / "bert-base-uncased"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            document,
            id=str(document.relative_to(CHECKOUT)),
            marks=() if is_read_first(document) else pytest.mark.full,
        )
        for document in DOCUMENTS
        if code_blocks(document)
    ],
)
def test_commands_of_a_document_run(document: Path, folder: Path) -> None:
    for name, content in NAMED_FILE.findall(document.read_text(encoding="utf-8")):
        (folder / name).write_text(content, encoding="utf-8")
    for language, code in code_blocks(document):
        if language == "python":
            with temporary_registrations():
                exec(compile(code, str(document), "exec"), {"__name__": "document"})
            continue
        for words in commands(language, code):
            with temporary_registrations():
                result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
            allowed = ALLOWED_EXIT_CODES.get(words[1], {0})
            assert result.exit_code in allowed, f"{words}: {result.output}"


def test_every_replacement_occurs_in_a_document() -> None:
    text = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert [written for written in TOY_SIZES if written not in text] == []


def test_pictures_are_small_png_files() -> None:
    pictures = [*CHECKOUT.glob("docs/pictures/*")]
    assert {picture.suffix for picture in pictures} <= {".png"}
    assert [p.name for p in pictures if os.path.getsize(p) > 200_000] == []
