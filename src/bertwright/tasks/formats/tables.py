"""Tables of texts and pairs: TSV, CSV, JSON lines (plain or gzipped) and Parquet.

A TSV file has no quoting: a quote character is a character (as in the files of GLUE). A CSV file
has (RFC 4180). A JSON lines file has one object on each line.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.files import require_file
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.labels import LabelIs, read_labels
from bertwright.tasks.formats.lines import json_object, read_lines, suffix_of
from bertwright.tasks.formats.reader import Reader

Row = tuple[str, Mapping[str, Any]]
"""Where the row stands, for messages, and its fields by column."""

csv.field_size_limit(2**31 - 1)  # The default of 128 KiB is less than a long review.


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what.

    Attributes:
        label: None where there is none to be read.
        header: the names of the columns of a TSV or CSV file that has no row of names.
        others: the columns of texts that are no partner of the first.
    """

    first: str = "text"
    second: str | None = None
    label: str | None = "label"
    header: tuple[str, ...] | None = None
    others: tuple[str, ...] = ()


class TableReader(Reader):
    """Texts or pairs in the named columns of a table.

    Attributes:
        label_is: a ``class``, a ``number``, or several ``labels`` (a JSON list, a text of names
            with ``separator`` between, or an indicator vector).
        empty: whether a text may be empty.
    """

    kind: Literal["table"] = "table"
    columns: Columns = Columns()
    label_is: LabelIs = "class"
    separator: str = ","
    empty: bool = False

    @property
    def pairs(self) -> bool:
        return self.columns.second is not None

    def read(self, path: Path, labelled: bool = True) -> list[Example]:
        """The examples; the suffix tells the layout. Without labels a text may be empty, so that
        there is an answer for every line.

        Errors: UserError, naming file, line and column, for an unknown layout, a missing column, a
        row of another width, an empty text, a label that is missing or of another shape.
        """
        column = self.columns.label if labelled else None
        examples: list[Example] = []
        values: list[tuple[str, Any]] = []
        for where, row in rows_of(path, self.columns.header, self._wanted(labelled)):
            examples.append(self._example(where, row, labelled, empty=not labelled))
            if column is not None:
                values.append((f"{where}, column {column!r}", row[column]))
        if not examples:
            raise UserError(f"{path} holds no examples")
        if column is None:
            return examples
        labels = read_labels(self.label_is, values, self.separator)
        return [replace(e, label=label) for e, label in zip(examples, labels, strict=True)]

    def example(self, where: str, row: Mapping[str, Any]) -> Example:
        """An example without its label, of a row by column."""
        _require(where, self._wanted(labelled=False), row)
        return self._example(where, row, labelled=False, empty=True)

    def _wanted(self, labelled: bool) -> list[str]:
        columns = self.columns
        named = [columns.first, columns.second, columns.label if labelled else None]
        return [*(name for name in named if name is not None), *(columns.others * labelled)]

    def _example(
        self, where: str, row: Mapping[str, Any], labelled: bool, empty: bool = False
    ) -> Example:
        columns, empty = self.columns, empty or self.empty
        return Example(
            _text(where, row, columns.first, empty),
            None if columns.second is None else _text(where, row, columns.second, empty),
            others=tuple(_text(where, row, other, empty) for other in columns.others * labelled),
            where=where,
        )


def rows_of(path: Path, header: tuple[str, ...] | None, wanted: list[str]) -> Iterator[Row]:
    """The rows of a table, which has these columns; ``header`` names all of one without names.

    Errors: UserError for an unknown layout, a column that is missing or there twice.
    """
    require_file(path)
    suffix = suffix_of(path)
    if suffix not in _ROWS:
        known = ", ".join(_ROWS)
        raise UserError(f"{path}: {suffix or 'no suffix'} is no table (known: {known}, also .gz)")
    return _ROWS[suffix](path, header, wanted)


def _tsv(path: Path, header: tuple[str, ...] | None, wanted: list[str]) -> Iterator[Row]:
    rows = ((number, line.split("\t") if line else []) for number, line in read_lines(path))
    return _named(path, header, wanted, rows)


def _csv(path: Path, header: tuple[str, ...] | None, wanted: list[str]) -> Iterator[Row]:
    reader = csv.reader((line + "\n" for _, line in read_lines(path)), strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        ended = 0
        try:
            for row in reader:
                ended = reader.line_num
                yield ended, row
        except csv.Error as error:
            raise UserError(
                f"{path} line {ended + 1}: the row that begins here is not CSV ({error}): look "
                f"for a quote that is not closed, and write one within a text twice"
            ) from error

    return _named(path, header, wanted, rows())


def _jsonl(path: Path, header: tuple[str, ...] | None, wanted: list[str]) -> Iterator[Row]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        row = json_object(where, line)
        _require(where, wanted, row)
        yield where, row


def _parquet(path: Path, header: tuple[str, ...] | None, wanted: list[str]) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        file: Any = parquet.ParquetFile(path)
        _require(str(path), wanted, file.schema_arrow.names)
        number = 0
        for batch in file.iter_batches(columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield f"{path} row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is no whole Parquet file ({error}): fetch it again") from error


_ROWS = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}


def _named(
    path: Path,
    header: tuple[str, ...] | None,
    wanted: list[str],
    rows: Iterator[tuple[int, list[str]]],
) -> Iterator[Row]:
    """Rows of fields with the names of their columns; an empty line has no fields."""
    names = header
    if names is None:
        number, names = next((row for row in rows if row[1]), (0, ()))
        if not names:
            raise UserError(f"{path} is empty: expected a first line with the names of the columns")
        _require(f"{path} line {number}", wanted, names)
    for number, fields in rows:
        where = f"{path} line {number}"
        if not fields:
            if len(names) > 1:
                continue
            fields = [""]  # the only column, of which a line may hold nothing
        if len(fields) != len(names):
            raise UserError(
                f"{where} has {len(fields)} columns instead of {len(names)}: mend the line, or "
                f"take it out"
            )
        yield where, dict(zip(names, fields, strict=True))


def _require(where: str, wanted: Iterable[str], present: Iterable[str]) -> None:
    """Refuse columns that are not there, or there twice."""
    counts = Counter(list(present))
    for column in wanted:
        if not counts[column]:
            raise UserError(f"{where}: no column {column!r}{did_you_mean(column, counts)}")
        if counts[column] > 1:
            raise UserError(f"{where}: {counts[column]} columns are named {column!r}: rename one")


def _text(where: str, row: Mapping[str, Any], column: str, empty: bool) -> str:
    value = row[column]
    if not isinstance(value, str):
        kind = type(value).__name__
        raise UserError(f"{where}, column {column!r}: expected a text, found {kind} {value!r}")
    if not value.strip() and not empty:
        raise UserError(f"{where}, column {column!r}: the text is empty: remove the line")
    return value.strip()
