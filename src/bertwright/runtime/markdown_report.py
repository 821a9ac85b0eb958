"""Results in Markdown files, in marked sections that a command rewrites.

A section states its provenance: command, date, machine and versions. Text outside the marks is
kept.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from bertwright.core.errors import UserError
from bertwright.core.files import read_text, require_writable, write_text
from bertwright.runtime.device import hardware_description, package_versions

LIBRARIES = ("torch", "transformers", "sentence-transformers", "tokenizers", "datasets")


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


def markdown_table(
    columns: Mapping[str, str], records: Sequence[Mapping[str, object]]
) -> list[str]:
    """Return the lines of a Markdown table.

    ``columns`` maps keys to headings; columns without a value are left out.
    """
    columns = {
        key: heading
        for key, heading in columns.items()
        if any(record.get(key) is not None for record in records)
    }
    lines = [_table_line(columns.values()), _table_line("---" for _ in columns)]
    lines += [_table_line(format_value(record.get(key)) for key in columns) for record in records]
    return lines


def run_provenance() -> str:
    """Return command, date, machine and versions in one line."""
    libraries = ", ".join(
        f"{name} {version}" for name, version in package_versions(*LIBRARIES).items()
    )
    date = datetime.now(UTC).date().isoformat()
    return f"`{command_line()}`, {date}; {hardware_description()}; {libraries}."


def command_line() -> str:
    """Return the running command, with paths relative to the current folder."""
    program, *arguments = sys.argv
    name = Path(program).name
    # With `python -m` the program is the package's __main__.py.
    words = ["python", "-m", Path(program).parent.name] if name == "__main__.py" else [name]
    return shlex.join([*words, *(os.path.relpath(a) if os.path.isabs(a) else a for a in arguments)])


def _document_heading(path: Path) -> str:
    return f"# {path.stem.replace('-', ' ').capitalize()}\n"


def _table_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def format_value(value: object) -> str:
    """Return a value formatted for people; "" for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in cast(Sequence[object], value))
    return str(value)
