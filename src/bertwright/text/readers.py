"""Files to documents: plain text, JSON lines, CSV, TSV and parquet, each also .gz or .zst."""

import csv
import glob
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.text.documents import ReadCounts, documents_at_blank_lines, documents_of_row
from bertwright.text.streams import bounded_lines, decode, lines, read_bytes

STANDARD_INPUT = "-"
_COMPRESSED = (".gz", ".zst")
_LONGEST_ROW = 1 << 28
_ROWS_AT_A_TIME = 256


@dataclass(frozen=True)
class Source:
    """A file (or standard input), what format it has, and which column holds the text."""

    name: str
    format: str
    column: str = "text"


def find_sources(
    inputs: Sequence[str | Path],
    column: str = "text",
    format: str | None = None,
    counts: ReadCounts | None = None,
) -> list[Source]:
    """The files that paths, folders and patterns name; folders in the order of their names.

    Errors: UserError for a name that fits nothing, and for a format that is not known.
    """
    if format is not None and format not in _FORMATS:
        raise UserError(f"there is no text format {format!r}{did_you_mean(format, _FORMATS)}")
    sources: dict[str, Source] = {}
    for given in map(str, inputs):
        for name in _files(given, format, counts or ReadCounts()):
            found = format or ("txt" if name == STANDARD_INPUT else _format_of(name))
            if found is None:
                raise UserError(
                    f"{name}: no known ending ({', '.join(f'.{known}' for known in _FORMATS)}, "
                    "each also .gz or .zst): say what it is with --format"
                )
            sources.setdefault(name, Source(name, found, column))
    return list(sources.values())


def read_documents(sources: Sequence[Source], counts: ReadCounts) -> Iterator[str]:
    """The documents of all sources, one source after the other, in bounded memory."""
    for source in sources:
        read = _FORMATS[source.format]
        if source.name == STANDARD_INPUT:
            yield from read(sys.stdin.buffer, source, counts)
        else:
            try:
                with open(source.name, "rb") as raw:
                    yield from read(raw, source, counts)
            except OSError as error:
                raise UserError(f"{source.name} cannot be read: {error.strerror}") from None


def _files(given: str, format: str | None, counts: ReadCounts) -> list[str]:
    path = Path(given)
    if given == STANDARD_INPUT or path.is_file():
        return [given]
    if path.is_dir():
        files = sorted(str(f) for f in path.rglob("*") if f.is_file() and not _hidden(f, path))
        known = [file for file in files if format or _format_of(file)]
        counts.ignored_files += len(files) - len(known)
        if not known:
            endings = ", ".join(f".{known}" for known in _FORMATS)
            raise UserError(f"{given} holds no text: no file in it ends in {endings} (.gz, .zst)")
        return known
    matches = sorted(f for f in glob.glob(given, recursive=True) if Path(f).is_file())
    if not matches:
        raise UserError(f"{given}: there is no such file or folder")
    return matches


def _hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _format_of(name: str) -> str | None:
    path = Path(name)
    if path.suffix in _COMPRESSED:
        path = path.with_suffix("")
    ending = path.suffix.lower().removeprefix(".")
    return ending if ending in _FORMATS else None


def _read_txt(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[str]:
    texts = decode(read_bytes(raw, source.name, counts), source.name, counts)
    yield from documents_at_blank_lines(bounded_lines(texts, counts), counts)


def _read_jsonl(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[str]:
    texts = decode(read_bytes(raw, source.name, counts), source.name, counts)
    for number, line in enumerate(lines(texts, source.name, _LONGEST_ROW), start=1):
        if not line.strip():
            continue
        where = f"{source.name}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise UserError(f"{where} is not a JSON object: each line must be {{...}}")
        if source.column not in row:
            raise _missing_column(where, source.column, list(row))
        yield from _documents_of_value(row[source.column], where, source, counts)


def _read_separated(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[str]:
    texts = decode(read_bytes(raw, source.name, counts), source.name, counts)
    ended = (f"{line}\n" for line in lines(texts, source.name, _LONGEST_ROW))
    csv.field_size_limit(_LONGEST_ROW)
    rows = csv.reader(ended, dialect=_DIALECTS[source.format])
    try:
        header = next(rows, [])
        if header and source.column not in header:
            raise _missing_column(source.name, source.column, header)
        for row in rows:
            place = header.index(source.column)
            value = row[place] if place < len(row) else ""
            yield from _documents_of_value(value, source.name, source, counts)
    except csv.Error as error:
        raise UserError(f"{source.name}, line {rows.line_num}: {error}") from None


def _read_parquet(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[str]:
    import pyarrow as arrow
    from pyarrow import parquet

    with tempfile.TemporaryFile() as plain:
        # Parquet is read from its end, so what comes as a stream is laid down first.
        for block in read_bytes(raw, source.name, counts):
            plain.write(block)
        plain.seek(0)
        if not plain.read(1):
            return
        try:
            file: Any = parquet.ParquetFile(plain)
            if source.column not in file.schema_arrow.names:
                raise _missing_column(source.name, source.column, file.schema_arrow.names)
            for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=[source.column]):
                for value in batch.column(0).to_pylist():
                    yield from _documents_of_value(value, source.name, source, counts)
        except (arrow.ArrowException, OSError) as error:
            first_line = str(error).partition("\n")[0]
            raise UserError(f"{source.name} is not a whole parquet file: {first_line}") from None


def _documents_of_value(
    value: Any, where: str, source: Source, counts: ReadCounts
) -> Iterator[str]:
    if value is None:
        value = ""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise UserError(
            f"{where}: {source.column!r} holds {type(value).__name__}, not text: "
            "choose another column with --column"
        )
    yield from documents_of_row(value, counts)


def _missing_column(where: str, column: str, known: Sequence[str]) -> UserError:
    return UserError(
        f"{where} has no column {column!r}{did_you_mean(column, known)}; choose one with --column"
    )


class _Tsv(csv.excel_tab):
    """Tab-separated with quotes as ordinary characters, as published data sets are."""

    quoting = csv.QUOTE_NONE


_DIALECTS: dict[str, type[csv.Dialect]] = {"csv": csv.excel, "tsv": _Tsv}

_FORMATS: dict[str, Callable[[BinaryIO, Source, ReadCounts], Iterator[str]]] = {
    "txt": _read_txt,
    "jsonl": _read_jsonl,
    "csv": _read_separated,
    "tsv": _read_separated,
    "parquet": _read_parquet,
}
"""Readers by format. Each is one function of (open file, source, counts)."""
