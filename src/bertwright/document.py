"""Figures in documents: a marked section of a Markdown file, which a command rewrites.

A section carries its own origin: command, date, machine and versions. What stands outside the marks
is left alone.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from bertwright.errors import UserError
from bertwright.files import read_text, require_writable, write_text
from bertwright.machine.description import description, versions

LIBRARIES = ("torch", "transformers", "sentence-transformers", "tokenizers", "datasets")


_BEGIN = re.compile(r"^<!-- (.+): written by command -->$", re.MULTILINE)


def require_document(path: Path) -> None:
    """Refuse a document that cannot be written, or whose sections have no end, before what it shall
    hold is found: UserError."""
    require_writable(path)
    whole = read_text(path) if path.is_file() else ""
    for begun in _BEGIN.finditer(whole):
        _end_of(path, begun[1], whole[begun.end() :])


def write_section(path: Path, name: str, lines: Sequence[str], made: str | None = None) -> None:
    """Put ``lines`` and their origin into the section ``name`` of a document: ``made`` says it,
    where they were not found just now.

    A section that is not there yet is added at the end; a document that is not there is made.
    Errors: UserError for a section whose end mark is missing, and for a document that is no text.
    """
    begin, end = f"<!-- {name}: written by command -->", _end(name)
    section = "\n".join([begin, "", *lines, "", made or origin(), "", end])
    old = read_text(path) if path.is_file() else _heading(path)
    before, begun, rest = old.partition(begin)
    if not begun:
        write_text(path, f"{old.rstrip()}\n\n{section}\n")
        return
    write_text(path, before + section + _end_of(path, name, rest))


def _end(name: str) -> str:
    return f"<!-- end of {name} -->"


def _end_of(path: Path, name: str, rest: str) -> str:
    """What stands behind the end of a section."""
    _, ended, after = rest.partition(_end(name))
    if not ended:
        raise UserError(
            f"{path}: the section {name!r} has no end: put the line {_end(name)} after it"
        )
    return after


def table(columns: Mapping[str, str], rows: Sequence[Mapping[str, object]]) -> list[str]:
    """A Markdown table: ``columns`` from key to heading, those that no row has left out."""
    columns = {
        key: heading
        for key, heading in columns.items()
        if any(row.get(key) is not None for row in rows)
    }
    lines = [_row(columns.values()), _row("---" for _ in columns)]
    lines += [_row(shown(row.get(key)) for key in columns) for row in rows]
    return lines


def origin() -> str:
    """Command, date, machine and versions, in one line."""
    libraries = ", ".join(f"{name} {number}" for name, number in versions(*LIBRARIES).items())
    date = datetime.now(UTC).date().isoformat()
    return f"`{command_line()}`, {date}; {description()}; {libraries}."


def command_line() -> str:
    """The command that is running, its paths as seen from the current folder."""
    program, *arguments = sys.argv
    name = Path(program).name
    # By `python -m` the program is the file inside of the package.
    words = ["python", "-m", Path(program).parent.name] if name == "__main__.py" else [name]
    return shlex.join([*words, *(os.path.relpath(a) if os.path.isabs(a) else a for a in arguments)])


def _heading(path: Path) -> str:
    return f"# {path.stem.replace('-', ' ').capitalize()}\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def shown(value: object) -> str:
    """A value as people read it; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(shown(each) for each in cast(Sequence[object], value))
    return str(value)
