"""Tables of sentences or sentence pairs: TSV, CSV and JSON lines, plain or gzipped.

A TSV file has no quoting: a quote character is a character (as in the files of GLUE). A CSV file
has (RFC 4180). A JSON lines file has one object on each line.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.lines import json_object, read_lines, suffix_of

Row = tuple[str, Mapping[str, Any]]
"""Where the row stands, for messages, and its fields by column."""

csv.field_size_limit(2**31 - 1)  # The default of 128 KiB is less than a long review.


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what."""

    first: str = "text"
    second: str | None = None
    label: str | None = "label"
    """None: there are no labels to be read."""
    header: tuple[str, ...] | None = None
    """The names of the columns of a TSV or CSV file that has no row of names."""


def read_table(
    path: Path,
    columns: Columns,
    answer: Literal["class", "number"] = "class",
    labels: Sequence[str] = (),
) -> list[Example]:
    """The examples of a table; the suffix tells its layout.

    Errors: UserError, naming file, line and column, for an unknown layout, a missing column, a row
    of another width, a label that is not among ``labels`` (where there are any) or is no number.
    """
    suffix = suffix_of(path)
    if suffix not in _ROWS:
        known = ", ".join(_ROWS)
        raise UserError(f"{path}: {suffix or 'no suffix'} is no table (known: {known}, also .gz)")
    examples = [
        Example(
            _text(where, row, columns.first),
            None if columns.second is None else _text(where, row, columns.second),
            None if columns.label is None else _label(where, row, columns.label, answer, labels),
        )
        for where, row in _ROWS[suffix](path, columns)
    ]
    if not examples:
        raise UserError(f"{path} holds no examples")
    return examples


def _tsv(path: Path, columns: Columns) -> Iterator[Row]:
    rows = ((number, line.split("\t")) for number, line in read_lines(path) if line)
    return _named(path, columns, rows)


def _csv(path: Path, columns: Columns) -> Iterator[Row]:
    reader = csv.reader((line + "\n" for _, line in read_lines(path)), strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise UserError(f"{path} line {reader.line_num} is not CSV: {error}") from error

    return _named(path, columns, rows())


def _jsonl(path: Path, columns: Columns) -> Iterator[Row]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        row = json_object(where, line)
        _require(where, columns, row)
        yield where, row


_ROWS = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl}


def _named(path: Path, columns: Columns, rows: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    """Rows of fields with the names of their columns."""
    header = columns.header
    if header is None:
        number, header = next(rows, (0, ()))
        if not header:
            raise UserError(f"{path} is empty: expected a first line with the names of the columns")
        _require(f"{path} line {number}", columns, header)
    for number, fields in rows:
        where = f"{path} line {number}"
        if len(fields) != len(header):
            raise UserError(f"{where} has {len(fields)} columns instead of {len(header)}")
        yield where, dict(zip(header, fields, strict=True))


def _require(where: str, columns: Columns, present: Iterable[str]) -> None:
    for column in (columns.first, columns.second, columns.label):
        if column is not None and column not in present:
            raise UserError(f"{where}: no column {column!r}{did_you_mean(column, present)}")


def _text(where: str, row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    if not isinstance(value, str):
        kind = type(value).__name__
        raise UserError(f"{where}, column {column!r}: expected a text, found {kind} {value!r}")
    return value.strip()


def _label(
    where: str, row: Mapping[str, Any], column: str, answer: str, labels: Sequence[str]
) -> str | float:
    place = f"{where}, column {column!r}"
    value = row[column]
    if value is None or isinstance(value, list | dict):
        raise UserError(f"{place}: expected a label, found {json.dumps(value)}")
    if answer == "number":
        return _number(place, value)
    label = value.strip() if isinstance(value, str) else json.dumps(value)
    if labels and label not in labels:
        raise UserError(f"{place}: no label {label!r}{did_you_mean(label, labels)}")
    return label


def _number(place: str, value: Any) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{place}: expected a number, found {value!r}")
    return number
