"""Every link in the documents has a target, and every command in them exists."""

import re
from collections import Counter
from pathlib import Path

import pytest
import typer

from bertwright.cli.app import app
from checkout import CHECKOUT

DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")])
LINK = re.compile(
    r"\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)"  # [text](target "title"), also around an image
    r"|^\[[^\]]+\]:\s+(\S+)"  # [label]: target
    r"|(?:href|src)=\"([^\"]+)\"",
    re.MULTILINE,
)
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
TABLE_OF_CONTENTS = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
GENERATED = {
    CHECKOUT / "docs" / "reference" / f"{n}.md" for n in ("command-line", "recipe-keys", "python")
}
"""Pages that make docs writes."""
HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
LABEL = re.compile(r"^\(([\w-]+)\)=$|\bid=\"([\w-]+)\"", re.MULTILINE)
MAX_HEADING_LEVEL = 3
"""Deepest heading to which Sphinx gives an anchor (``myst_heading_anchors``)."""

documents = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT))
)


def anchors(document: Path) -> set[str]:
    """Return the anchors of labels and headings, as GitHub and Sphinx name them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    names = {label for match in LABEL.findall(text) for label in match if label}
    repeated: Counter[str] = Counter()
    for marks, heading in HEADING.findall(text):
        visible = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", visible).replace(" ", "-")
        if len(marks) <= MAX_HEADING_LEVEL or CHECKOUT / "docs" not in document.parents:
            names.add(f"{name}-{repeated[name]}" if repeated[name] else name)
        repeated[name] += 1
    return names


def links(document: Path) -> list[str]:
    """Return the targets of all links to files and headings."""
    targets = ["".join(match) for match in LINK.findall(CODE.sub("", document.read_text()))]
    return [target for target in targets if not re.match(r"(https?|mailto|data):", target)]


def commands(document: Path) -> list[list[str]]:
    """Return the words of every line in the shell blocks of a document."""
    lines = "\n".join(BLOCK.findall(document.read_text())).splitlines()
    return [words for line in lines if (words := line.removeprefix("$ ").split())]


@documents
def test_links_have_targets(document: Path) -> None:
    broken = []
    for link in links(document):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if target.resolve() in GENERATED:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_links_of_every_form_are_checked(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        '[a](one.md "title") [![b](two.svg)](<three.md>)\n\n<img src="four.png"> `[c](code.md)`\n\n'
        "```\n[d](block.md)\n```\n[e]: five.md#part\n[f](https://example.org) [g](#here)\n"
    )
    targets = ["one.md", "two.svg", "three.md", "four.png", "five.md#part", "#here"]
    assert links(document) == targets


def test_anchors_of_headings_and_labels(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "# A `code`, and more\n## [Linked](x.md) part\n## Again\n## Again\n"
        "(label)=\n```\n# no\n```\n"
    )
    assert anchors(document) == {"a-code-and-more", "linked-part", "again", "again-1", "label"}


def test_documents_of_the_checkout_are_checked() -> None:
    names = {str(document.relative_to(CHECKOUT)) for document in DOCUMENTS}
    assert names >= {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/index.md"}


def test_every_page_is_in_a_table_of_contents() -> None:
    pages = set()
    for document in CHECKOUT.glob("docs/**/*.md"):
        for block in TABLE_OF_CONTENTS.findall(document.read_text()):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            pages |= {(document.parent / f"{line}.md").resolve() for line in lines}
    built = {path for path in DOCUMENTS if path.parent != CHECKOUT and "_build" not in path.parts}
    assert pages - built <= GENERATED
    assert built - pages <= GENERATED | {CHECKOUT / "docs" / "index.md"}


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
