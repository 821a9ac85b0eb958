"""Documents: every link leads somewhere, and every command that they name exists."""

import re
from pathlib import Path

import pytest
import typer

from bertwright.cli.application import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

documents = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def anchors(document: Path) -> set[str]:
    """The names under which headings can be linked, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    kept = (re.sub(r"[^\w\- ]", "", heading).lower() for heading in HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in kept}


def commands(document: Path) -> list[list[str]]:
    """The words of every line in the shell blocks of a document."""
    lines = "\n".join(BLOCK.findall(document.read_text())).splitlines()
    return [words for line in lines if (words := line.removeprefix("$ ").split())]


@documents
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(document.read_text()):
        if link.startswith(("https:", "http:", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@documents
def test_make_targets_exist(document: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [words[1] for words in commands(document) if words[0] == "make" and len(words) > 1]
    assert [name for name in named if name not in targets] == []


@documents
def test_verbs_exist(document: Path) -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    verbs = command.list_commands(typer.Context(command))
    named = [words[1] for words in commands(document) if words[0] == "bertwright" and words[1:]]
    assert [name for name in named if name not in verbs and not name.startswith("-")] == []
