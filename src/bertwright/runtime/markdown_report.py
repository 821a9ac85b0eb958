"""Markdown tables, and the provenance of results."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from bertwright.runtime.device import hardware_description, package_versions

LIBRARIES = ("torch", "transformers", "sentence-transformers", "tokenizers", "datasets")


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
    """Return the command, date, machine and versions in one line."""
    libraries = ", ".join(
        f"{name} {version}" for name, version in package_versions(*LIBRARIES).items()
    )
    date = datetime.now(UTC).date().isoformat()
    return f"`{command_line()}`, {date}; {hardware_description()}; {libraries}."


def command_line() -> str:
    """Return the running command, with absolute paths relative to the current folder.

    A path outside of it is reduced to its name, which does not depend on the machine.
    """
    program, *arguments = sys.argv
    module = sys.modules["__main__"].__spec__  # None for a script
    words = [Path(program).name] if module is None else ["python", "-m", module.parent or ""]
    return shlex.join([*words, *map(_without_machine_paths, arguments)])


def _without_machine_paths(argument: str) -> str:
    path = Path(argument)
    if not path.is_absolute():
        return argument
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


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
