"""The commands and the Python of README and docs run, in their order, in a folder that has what
they name.

They run as they are written, but for the sizes and times in ``AT_TOY_SIZE``, and judge models by
less held-out text. Commands of make are left to ``test_documents.py``, which looks that the targets
exist.
"""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from stock import saved, stock_model
from typer.testing import CliRunner

from bertwright.cli.application import app
from short_runs import shorten

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(bash|console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OWN_FILE = re.compile(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)

FEW = ("steps=2", "batch_tokens=256", "phases=[{length: 64}]", "compile=false")
FEW_STEPS = shlex.join(FEW)
AT_TOY_SIZE = {
    "--vocab-size 8192": "--vocab-size 300",
    "doctor data modern-mini": "doctor data modern-mini --quick",
    "--budget 20m": FEW_STEPS,
    "--seeds 3": "--seeds 2 epochs=1",
    "--budget 10m": "--seeds 1 --budget 1s",
    '"steps=2000"': ", ".join(f'"{change}"' for change in FEW),
}
"""What is written, and what is run in its place."""

SAID = [("a", "ship", "good"), ("b", "lamp", "fine"), ("a", "lamp", "bad"), ("b", "ship", "poor")]

EXIT_CODES = {"doctor": {0, 1}}
"""0 where nothing else is said; doctor has 1 for a text as small as this one."""


def blocks(document: Path) -> list[tuple[str, str]]:
    """(language, code) of every block that can be run, at toy size."""
    found = BLOCK.findall(document.read_text(encoding="utf-8"))
    return [(language, _smaller(code)) for language, code in found]


def _smaller(code: str) -> str:
    for written, run in AT_TOY_SIZE.items():
        code = code.replace(written, run)
    return code


def commands(language: str, code: str) -> list[list[str]]:
    """The words of every command of a shell block; of a console only what stands behind ``$``."""
    lines = code.replace("\\\n", " ").splitlines()
    if language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    words = [shlex.split(line, comments=True) for line in lines]
    return [command for command in words if command and command[0] == "bertwright"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the documents take for granted."""
    (tmp_path / "text").mkdir()
    for number, document in enumerate(DOCUMENTS):
        prose = re.sub(r"[|`#*<>\[\]]+", " ", document.read_text(encoding="utf-8"))
        (tmp_path / "text" / f"{number}.txt").write_text(prose, encoding="utf-8")
    praise = [f"the {thing} is {how}" for thing in ("ship", "lamp") for how in ("good", "fine")]
    blame = [f"the {thing} is {how}" for thing in ("ship", "lamp") for how in ("bad", "poor")]
    rows = [*(f"{text}\t5" for text in praise), *(f"{text}\t1" for text in blame)]
    for name in ("reviews.tsv", "more-reviews.tsv"):
        (tmp_path / name).write_text("\n".join(["review\tstars", *rows, *rows]) + "\n")
    (tmp_path / "unread.txt").write_text("\n".join([*praise, *blame]) + "\n")
    pair = '{"sentence_good": "the ships come", "sentence_bad": "the ships comes", "UID": "s"}'
    (tmp_path / "pairs.jsonl").write_text(f"{pair}\n")
    turns = [{"speaker": who, "text": f"the {what} is {how}"} for who, what, how in SAID]
    (tmp_path / "dialogues.jsonl").write_text(f"{json.dumps({'dialogue': turns})}\n" * 20)
    (tmp_path / "phrases.txt").write_text("held-out text\nAdam\tperson\n")
    (tmp_path / "english.txt").write_text(f"{'the ship is good ' * 12}\n\n" * 60)
    (tmp_path / "german.txt").write_text(f"{'das schiff ist gut ' * 12}\n\n" * 60)
    watched = [f"u{n},film {(n * k) % 7},{k}" for n in range(1, 9) for k in range(1, 8)]
    (tmp_path / "watched.csv").write_text("\n".join(["user,film,time", *watched]) + "\n")
    for example in (ROOT / "docs" / "examples").iterdir():
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
    [document for document in DOCUMENTS if blocks(document)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_commands_of_a_document_run(document: Path, folder: Path) -> None:
    for name, content in OWN_FILE.findall(document.read_text(encoding="utf-8")):
        (folder / name).write_text(content, encoding="utf-8")
    for language, code in blocks(document):
        if language == "python":
            exec(compile(code, str(document), "exec"), {"__name__": "document"})
            continue
        for words in commands(language, code):
            result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
            assert result.exit_code in EXIT_CODES.get(words[1], {0}), f"{words}: {result.output}"


def test_the_example_of_an_objective_is_short() -> None:
    lines = (ROOT / "docs" / "examples" / "misplaced.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60
    assert f"in {len(lines)} lines" in (ROOT / "docs" / "adding-an-objective.md").read_text()


def test_every_replacement_is_of_something_that_is_written() -> None:
    written = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert [text for text in AT_TOY_SIZE if text not in written] == []


def test_the_pictures_are_small() -> None:
    pictures = [*ROOT.glob("docs/pictures/*")]
    assert {picture.suffix for picture in pictures} <= {".png"}
    assert [p.name for p in pictures if os.path.getsize(p) > 200_000] == []
