"""What every verb prints: one JSON object on stdout, or aligned rows."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.files import require_writable


def _document(path: Path | None) -> Path | None:
    from bertwright.document import require_document

    if path is not None:
        require_document(path)
    return path


def _picture(path: Path | None) -> Path | None:
    if path is not None:
        require_writable(path)
    return path


# Both are looked at before what they shall hold is found, which may take hours.
Document = Annotated[
    Path | None,
    typer.Option(
        help="A Markdown file whose section of this command is rewritten.", callback=_document
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(help="A PNG file that shows the same.", callback=_picture),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def report(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result: as one JSON object on stdout, or as aligned rows."""
    if as_json:
        json.dump(result, sys.stdout)
        sys.stdout.write("\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(result):
        table.add_row(Text(name.replace("_", " ")), Text(value))
    Console().print(table)


def say(message: str) -> None:
    """Print one line on stderr."""
    print(message, file=sys.stderr, flush=True)


def _rows(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            rows += _rows(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, _shown(value)))
    return rows


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(_shown(v) for v in value)
    return str(value)
