"""Output of every verb: one JSON object on stdout, or aligned rows."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.core.files import require_writable, require_writable_folder

# Outputs are checked before anything is computed, which may take hours.


def check_output_file(path: Path | None) -> Path | None:
    """Return the value of an option; UserError if the file cannot be written."""
    if path is not None:
        require_writable(path)
    return path


def check_output_folder(path: Path | None) -> Path | None:
    """Return the value of an option; UserError if no files can be written into the folder."""
    if path is not None:
        require_writable_folder(path)
    return path


PlotOption = Annotated[
    Path | None,
    typer.Option(help="A PNG file that shows the same.", callback=check_output_file),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


SEED_STATISTICS = ("scores", "mean", "deviation", "interval", "median", "best")
"""Keys of the scores of all seeds, and of statistics over them."""


def print_result(
    result: Mapping[str, Any], as_json: bool, lines: Iterable[str] | None = None
) -> None:
    """Print a result as one JSON object on stdout, or as ``lines``.

    The default ``lines`` are aligned rows, and below them a table for every list of mappings.
    """
    if as_json:
        json.dump(result, sys.stdout)
        sys.stdout.write("\n")
        return
    if lines is not None:
        for line in lines:
            typer.echo(line)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from bertwright.runtime.markdown_report import format_value, markdown_table

    lists = {name: value for name, value in result.items() if _is_table(value)}
    aligned = Table(show_header=False, box=None, pad_edge=False)
    aligned.add_column(no_wrap=True)
    aligned.add_column(overflow="fold")
    for name, value in _flatten({n: v for n, v in result.items() if n not in lists}):
        aligned.add_row(Text(_readable(name)), Text(format_value(value) or "-"))
    Console().print(aligned)
    for name, rows in lists.items():
        columns = {key: _readable(key) for row in rows for key in row}
        print("", f"{_readable(name)}:", "", *markdown_table(columns, rows), sep="\n")


def print_scores(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result with the scores of one or more seeds.

    Without --json, the score of a single seed, with its interval over examples if there is one,
    replaces statistics over seeds.
    """
    from bertwright.runtime.markdown_report import format_value

    if as_json or len(result["scores"]) > 1:
        print_result(result, as_json)
        return
    score = format_value(result["scores"][0])
    interval = result.get("intervals", {}).get(result["metric"])
    if isinstance(interval, list):
        score = f"{score} [{format_value(interval)}]"
    printed = {name: value for name, value in result.items() if name not in SEED_STATISTICS}
    print_result(
        {"task": result["task"], "metric": result["metric"], "score": score} | printed, False
    )


def print_results(
    results: Sequence[Mapping[str, Any]], columns: Mapping[str, str], as_json: bool
) -> None:
    """Print similar results as one JSON object, or as a table.

    ``columns`` maps keys to column headings.
    """
    from bertwright.runtime.markdown_report import markdown_table

    print_result({"results": results}, as_json, markdown_table(columns, results))


def log(message: str) -> None:
    """Print one line on stderr."""
    print(message, file=sys.stderr, flush=True)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _readable(name: str) -> str:
    return name.replace("_", " ")


def _flatten(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            rows += _flatten(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, value))
    return rows
