"""Tables of texts and pairs: TSV, CSV, JSON lines (plain or gzipped) and Parquet.

TSV has no quoting: a quote is an ordinary character, as in the files of GLUE. CSV has quoting. JSON
lines have one object per line.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.files import require_file
from bertwright.core.messages import count_noun
from bertwright.data.readers.parquet import parquet_rows
from bertwright.data.readers.tables import separated_rows
from bertwright.data.readers.text_lines import (
    format_suffix,
    parse_json_object,
    read_lines,
    read_located_lines,
)
from bertwright.tasks.formats.example_reader import ExampleReader
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.labels import LabelKind, read_labels

LocatedRow = tuple[str, Mapping[str, Any]]
"""Location of a row, for messages, and its fields by column."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table.

    Attributes:
        label: the label column; None for a table without labels.
        header: the column names of a TSV or CSV file without a header line.
        negatives: columns of texts that do not match ``text``.
        pair_is_optional: whether a table without the column ``pair`` has single texts.
    """

    text: str = "text"
    pair: str | None = None
    label: str | None = "label"
    header: tuple[str, ...] | None = None
    negatives: tuple[str, ...] = ()
    pair_is_optional: bool = False


class TableReader(ExampleReader):
    """Texts or text pairs in the named columns of a table.

    Attributes:
        label_kind: a ``class``, a ``number``, or several ``labels`` (a JSON list, names separated
            by ``separator``, or an indicator vector).
        allow_empty: whether a text may be empty.
    """

    kind: Literal["table"] = "table"
    columns: Columns = Columns()
    label_kind: LabelKind = "class"
    separator: str = ","
    allow_empty: bool = False

    @property
    def has_pairs(self) -> bool | None:
        return None if self.columns.pair_is_optional else self.columns.pair is not None

    def read(self, path: Path, with_labels: bool = True) -> list[Example]:
        """Read the examples; the suffix determines the format.

        Without labels a text may be empty, so that every line gets a prediction. Errors: UserError
        with file, line and column, for an unknown format, a missing column, a row of another width,
        an empty text, or a missing or invalid label.
        """
        column = self.columns.label if with_labels else None
        examples: list[Example] = []
        values: list[tuple[str, Any]] = []
        names = self.column_names(with_labels), self.optional_column_names
        for location, row in read_table(path, self.columns.header, *names):
            examples.append(
                self._parse_example(location, row, with_labels, allow_empty=not with_labels)
            )
            if column is not None:
                values.append((f"{location}, column {column!r}", row[column]))
        if not examples:
            raise UserError(f"{path} has no examples")
        if column is None:
            return examples
        labels = read_labels(self.label_kind, values, self.separator)
        return [replace(e, label=label) for e, label in zip(examples, labels, strict=True)]

    def unlabelled_example(self, location: str, row: Mapping[str, Any]) -> Example:
        """Return the example of a row, without its label."""
        _require_columns(location, self.column_names(with_labels=False), row)
        return self._parse_example(location, row, with_labels=False, allow_empty=True)

    def column_names(self, with_labels: bool = True) -> list[str]:
        """Return the columns that a table must have."""
        columns = self.columns
        pair = None if columns.pair_is_optional else columns.pair
        names = [columns.text, pair, columns.label if with_labels else None]
        return [*(name for name in names if name is not None), *(columns.negatives * with_labels)]

    @property
    def optional_column_names(self) -> list[str]:
        """The columns that a table may have."""
        pair = self.columns.pair
        return [pair] if pair is not None and self.columns.pair_is_optional else []

    def _parse_example(
        self, location: str, row: Mapping[str, Any], with_labels: bool, allow_empty: bool = False
    ) -> Example:
        columns, allow_empty = self.columns, allow_empty or self.allow_empty
        pair = columns.pair
        if pair is not None and columns.pair_is_optional and row.get(pair) is None:
            pair = None
        return Example(
            parse_text(location, row, columns.text, allow_empty),
            None if pair is None else parse_text(location, row, pair, allow_empty),
            negatives=tuple(
                parse_text(location, row, column, allow_empty)
                for column in columns.negatives * with_labels
            ),
            location=location,
        )


def read_table(
    path: Path,
    header: tuple[str, ...] | None,
    columns: list[str],
    optional_columns: Sequence[str] = (),
) -> Iterator[LocatedRow]:
    """Iterate over the rows of a table with these columns; ``header`` names all its columns.

    Errors: UserError for an unknown format, a column that is missing or duplicated.
    """
    require_file(path)
    match format_suffix(path):
        case ".tsv" | ".csv":
            return _read_separated(path, header, columns)
        case ".jsonl":
            return _read_jsonl(path, columns)
        case ".parquet":
            return _read_parquet(path, columns, optional_columns)
        case suffix:
            raise UserError(
                f"{path}: {suffix or 'no suffix'} is not a table format (known: .tsv, .csv, "
                f".jsonl, .parquet, also .gz)"
            )


def read_pairs(path: Path, text: str, pair: str) -> Iterator[tuple[str, str]]:
    """Iterate over the pairs of texts in two columns of a table, in bounded memory.

    Errors: UserError with file, line and column, as for examples.
    """
    for location, row in read_table(path, None, [text, pair]):
        first, second = (parse_text(location, row, column, False) for column in (text, pair))
        yield first, second


def _read_separated(
    path: Path, header: tuple[str, ...] | None, columns: list[str]
) -> Iterator[LocatedRow]:
    lines = (line for _, line in read_lines(path))
    rows = separated_rows(lines, str(path), is_tsv=format_suffix(path) == ".tsv")
    names = header
    if names is None:
        number, names = next((row for row in rows if row[1]), (0, ()))
        if not names:
            raise UserError(f"{path} is empty: expected a first line with the names of the columns")
        _require_columns(f"{path} line {number}", columns, names)
    for number, fields in rows:
        location = f"{path} line {number}"
        if not fields:
            if len(names) > 1:
                continue
            fields = [""]  # the only column may be empty
        if len(fields) != len(names):
            raise UserError(
                f"{location} has {count_noun(len(fields), 'column')} instead of {len(names)}: fix "
                f"or remove the line"
            )
        yield location, dict(zip(names, fields, strict=True))


def _read_jsonl(path: Path, columns: list[str]) -> Iterator[LocatedRow]:
    for location, line in read_located_lines(path):
        if line.strip():
            row = parse_json_object(location, line)
            _require_columns(location, columns, row)
            yield location, row


def _read_parquet(
    path: Path, columns: list[str], optional_columns: Sequence[str]
) -> Iterator[LocatedRow]:
    def select(schema: Any) -> list[str]:
        _require_columns(str(path), columns, schema.names)
        return [*columns, *(name for name in optional_columns if name in schema.names)]

    rows = parquet_rows(path, str(path), select)
    return ((f"{path} row {number}", row) for number, row in rows)


def _require_columns(location: str, columns: Iterable[str], present: Iterable[str]) -> None:
    """Raise UserError for columns that are missing or duplicated."""
    counts = Counter(list(present))
    for column in columns:
        if not counts[column]:
            raise UserError(f"{location}: no column {column!r}{did_you_mean(column, counts)}")
        if counts[column] > 1:
            raise UserError(
                f"{location}: {counts[column]} columns are named {column!r}: rename one"
            )


def parse_text(location: str, row: Mapping[str, Any], column: str, allow_empty: bool) -> str:
    """Return the text of a column; UserError if it is no text, or empty."""
    value = row[column]
    if not isinstance(value, str):
        kind = type(value).__name__
        raise UserError(f"{location}, column {column!r}: expected a text, got {kind} {value!r}")
    if not value.strip() and not allow_empty:
        raise UserError(f"{location}, column {column!r}: the text is empty: remove the line")
    return value.strip()
