"""Every link in the documents has a target, and every command in them exists."""

import re
from pathlib import Path

import pytest
import typer

from bertwright.cli.app import app
from checkout import CHECKOUT

DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
GENERATED = {
    CHECKOUT / "docs" / "reference" / f"{n}.md" for n in ("command-line", "recipe-keys", "python")
}
"""Pages that make docs writes."""
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

documents = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT))
)


def anchors(document: Path) -> set[str]:
    """Return the anchors of all headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    names = (re.sub(r"[^\w\- ]", "", heading).lower() for heading in HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in names}


def commands(document: Path) -> list[list[str]]:
    """Return the words of every line in the shell blocks of a document."""
    lines = "\n".join(BLOCK.findall(document.read_text())).splitlines()
    return [words for line in lines if (words := line.removeprefix("$ ").split())]


@documents
def test_links_have_targets(document: Path) -> None:
    broken = []
    for link in LINK.findall(document.read_text()):
        if link.startswith(("https:", "http:", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if target.resolve() in GENERATED:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@documents
def test_make_targets_exist(document: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    used = [words[1] for words in commands(document) if words[0] == "make" and len(words) > 1]
    assert [name for name in used if name not in targets] == []


@documents
def test_commands_exist(document: Path) -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    names = command.list_commands(typer.Context(command))
    used = [words[1] for words in commands(document) if words[0] == "bertwright" and words[1:]]
    assert [name for name in used if name not in names and not name.startswith("-")] == []
