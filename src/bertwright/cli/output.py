"""What every verb prints: one JSON object on stdout, or aligned rows."""

import json
import sys
from collections.abc import Mapping, Sequence
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
    """Print a result: as one JSON object on stdout, or as aligned rows, and a table behind them for
    every list of things with values of their own."""
    if as_json:
        json.dump(result, sys.stdout)
        sys.stdout.write("\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from bertwright.document import shown, table

    lists = {name: value for name, value in result.items() if _is_table(value)}
    aligned = Table(show_header=False, box=None, pad_edge=False)
    aligned.add_column(no_wrap=True)
    aligned.add_column(overflow="fold")
    for name, value in _rows({n: v for n, v in result.items() if n not in lists}):
        aligned.add_row(Text(_words(name)), Text(shown(value) or "-"))
    Console().print(aligned)
    for name, rows in lists.items():
        columns = {key: _words(key) for row in rows for key in row}
        print("", f"{_words(name)}:", "", *table(columns, rows), sep="\n")


def report_results(
    results: Sequence[Mapping[str, Any]], columns: Mapping[str, str], as_json: bool
) -> None:
    """Print results of one kind: as one JSON object, or as a table of ``columns`` (key to
    heading)."""
    from bertwright.document import table

    if as_json:
        report({"results": results}, as_json)
    else:
        print(*table(columns, results), sep="\n")


def say(message: str) -> None:
    """Print one line on stderr."""
    print(message, file=sys.stderr, flush=True)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _rows(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            rows += _rows(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, value))
    return rows
