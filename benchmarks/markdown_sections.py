"""Results in Markdown files, in marked sections that a command rewrites.

A section states its provenance: command, date, machine and versions. Text outside the marks is
kept.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bertwright.core.errors import UserError
from bertwright.core.files import read_text, require_writable, write_text
from bertwright.runtime.markdown_report import run_provenance

_SECTION_START = re.compile(r"^<!-- (.+): written by command -->$", re.MULTILINE)


def require_report(path: Path) -> None:
    """Raise UserError if a report cannot be written, or a section has no end."""
    require_writable(path)
    text = read_text(path) if path.is_file() else ""
    for start in _SECTION_START.finditer(text):
        _text_after_section(path, start[1], text[start.end() :])


def write_section(
    path: Path, name: str, lines: Sequence[str], provenance: str | None = None
) -> None:
    """Write ``lines`` and their provenance into the section ``name`` of a report.

    The default provenance is this run's. A missing section is appended; a missing file is created.
    Errors: UserError for a section without an end mark, and for a file that is not UTF-8.
    """
    start, end = f"<!-- {name}: written by command -->", _end_mark(name)
    section = "\n".join([start, "", *lines, "", provenance or run_provenance(), "", end])
    old = read_text(path) if path.is_file() else _document_heading(path)
    before, match, rest = old.partition(start)
    if not match:
        write_text(path, f"{old.rstrip()}\n\n{section}\n")
        return
    write_text(path, before + section + _text_after_section(path, name, rest))


def _end_mark(name: str) -> str:
    return f"<!-- end of {name} -->"


def _text_after_section(path: Path, name: str, text: str) -> str:
    """Return the text after the end mark of a section."""
    _, match, after = text.partition(_end_mark(name))
    if not match:
        raise UserError(
            f"{path}: the section {name!r} has no end: put the line {_end_mark(name)} after it"
        )
    return after


def _document_heading(path: Path) -> str:
    return f"# {path.stem.replace('-', ' ').capitalize()}\n"


def _require_report(path: Path | None) -> Path | None:
    if path is not None:
        require_report(path)
    return path


# Looked at before the results are computed, which may take hours.
DocumentOption = Annotated[
    Path | None,
    typer.Option(
        help="A Markdown file whose section of this command is rewritten.", callback=_require_report
    ),
]
