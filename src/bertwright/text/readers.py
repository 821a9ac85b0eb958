"""Files to documents: plain text, JSON, JSON lines, CSV, TSV and parquet, each also .gz or .zst.

A source may state its language, or two of them where it holds translations; or a column does.
"""

import csv
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.files import full_disk_named, json_value
from bertwright.text.annotations import (
    annotated,
    annotated_row,
    require_within,
    stated_annotations,
)
from bertwright.text.dialogues import dialogue_of_value
from bertwright.text.documents import (
    Annotation,
    Document,
    ReadCounts,
    texts_at_blank_lines,
    texts_of_row,
)
from bertwright.text.languages import language_code
from bertwright.text.sidecars import stated_beside
from bertwright.text.sources import STANDARD_INPUT, Source
from bertwright.text.streams import bounded_lines, decode, lines, read_bytes

_LONGEST_ROW = 1 << 25
"""Characters of one row."""

_LONGEST_JSON = 1 << 28
"""Characters of a JSON file, which is read whole."""

_ROWS_AT_A_TIME = 256
_BYTES_AT_A_TIME = 1 << 28
"""Of parquet: fewer rows are decoded at once where a column is so large that one cell might be."""


Row = tuple[str, Sequence[Any]]
"""Where a row of a table stands, and what was read of it, in the order of the source's columns."""


def read_documents(sources: Sequence[Source], counts: ReadCounts) -> Iterator[Document]:
    """The documents of all sources, one source after the other, in bounded memory."""
    for source in sources:
        if source.beside is not None:
            yield from _read_aligned(source, source.beside, counts)
        elif source.format == "txt":
            with _opened(source.name) as raw:
                yield from _read_txt(raw, source, counts)
        else:
            for where, values in read_rows(source, counts):
                yield from _documents_of_row(values, where, source, counts)


def read_rows(source: Source, counts: ReadCounts) -> Iterator[Row]:
    """The rows of a table."""
    with _opened(source.name) as raw:
        yield from _TABLES[source.format](raw, source, counts)


@contextmanager
def _opened(name: str) -> Generator[BinaryIO]:
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        with open(name, "rb") as raw:
            yield raw
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}") from None


def _read_txt(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[Document]:
    known: list[Annotation] = []
    if source.annotations is not None:
        unread = ReadCounts()
        blocks = decode(read_bytes(raw, source.name, unread), source.name, unread)
        known = stated_beside(source.name, blocks)
        raw.seek(0)
    texts = decode(read_bytes(raw, source.name, counts), source.name, counts)
    language = source.languages[0] if source.languages else None
    whole = texts_at_blank_lines(bounded_lines(texts, counts), counts)
    for text, annotations in annotated(whole, known):
        if source.dialogues:
            yield from dialogue_of_value(text.split("\n"), language, source.name, counts)
        else:
            yield Document(text, language, annotations=annotations)


def _read_aligned(source: Source, beside: str, counts: ReadCounts) -> Iterator[Document]:
    """Line n of one file, and line n of the other as its translation."""
    names = (source.name, beside)
    with _opened(source.name) as first, _opened(beside) as second:
        sides = [
            lines(decode(read_bytes(raw, name, counts), name, counts), name, _LONGEST_ROW)
            for raw, name in zip((first, second), names, strict=True)
        ]
        for number, pair in enumerate(zip_longest(*sides)):
            if None in pair:
                short, long = names if pair[0] is None else names[::-1]
                raise UserError(
                    f"{short} ends after line {number:,} and {long} goes on: line n of one must be "
                    f"the translation of line n of the other"
                )
            yield from _documents_of_row(pair, f"{source.name}, line {number + 1}", source, counts)


def _read_jsonl(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[Row]:
    texts = decode(read_bytes(raw, source.name, counts), source.name, counts)
    for number, line in enumerate(lines(texts, source.name, _LONGEST_ROW), start=1):
        if not line.strip():
            continue
        where = f"{source.name}, line {number}"
        try:
            row = json_value(line, unique_keys)
        except ValueError as error:
            raise UserError(f"{where} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise UserError(f"{where} is not a JSON object: each line must be {{...}}")
        yield where, _chosen(row, where, source)


def _read_json(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[Row]:
    """One list of rows, read whole; the columns of a row that is a list are 0, 1, 2 ..."""
    parts, size = list[str](), 0
    for part in decode(read_bytes(raw, source.name, counts), source.name, counts):
        parts.append(part)
        size += len(part)
        if size > _LONGEST_JSON:
            raise UserError(
                f"{source.name} has more than {_LONGEST_JSON:,} characters, and JSON is read "
                f"whole: write one row in each line and name it .jsonl"
            )
    text = "".join(parts)
    try:
        rows = json_value(text, unique_keys) if text.strip() else []
    except ValueError as error:
        raise UserError(f"{source.name} is not JSON: {error}") from None
    if not isinstance(rows, list):
        raise UserError(
            f"{source.name} is not a JSON list of rows: where each line is an object, say "
            "--format jsonl"
        )
    given: list[Any] = rows
    for number, row in enumerate(given, start=1):
        where = f"{source.name}, row {number}"
        if isinstance(row, list):
            values: list[Any] = row
            row = {str(place): value for place, value in enumerate(values)}
        if not isinstance(row, dict):
            raise UserError(f"{where} is neither an object nor a list: each row must be one")
        yield where, _chosen(row, where, source)


def _read_separated(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[Row]:
    texts = decode(read_bytes(raw, source.name, counts), source.name, counts)
    size = 0

    def ended() -> Iterator[str]:
        nonlocal size
        for line in lines(texts, source.name, _LONGEST_ROW):
            size += len(line)
            if size > _LONGEST_ROW:
                raise csv.Error(f"it has more than {_LONGEST_ROW:,} characters")
            yield f"{line}\n"

    csv.field_size_limit(_LONGEST_ROW)
    rows = csv.reader(ended(), dialect=_DIALECTS[source.format], strict=True)
    header, places, line = list[str](), list[int](), 1
    try:
        for row in rows:
            size = 0
            where, line = f"{source.name}, line {line}", rows.line_num + 1
            if not row:
                continue  # an empty line is no row
            if not header:
                _require_once(source.name, source.columns, row)
                header, places = row, [_place(row, name, source) for name in source.columns]
                continue
            if len(row) != len(header):
                raise UserError(f"{where} has {len(row)} columns, and the first line {len(header)}")
            yield where, [row[place] for place in places]
    except csv.Error as error:
        raise UserError(
            f"{source.name}: the row that begins in line {line} is no CSV ({error}): close its "
            f"quotes, and double those inside"
        ) from None


def _read_parquet(raw: BinaryIO, source: Source, counts: ReadCounts) -> Iterator[Row]:
    import pyarrow as arrow
    from pyarrow import parquet

    with full_disk_named(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as plain:
        # Parquet is read from its end, so what comes as a stream is laid down first.
        for block in read_bytes(raw, source.name, counts):
            plain.write(block)
        plain.seek(0)
        if not plain.read(1):
            return
        number = 0
        try:
            file: Any = parquet.ParquetFile(plain)
            names: list[str] = file.schema_arrow.names
            wanted = [name for name in (*source.columns, source.column) if name in names]
            _require_once(source.name, wanted, names)
            for field in file.schema_arrow:
                if field.name in wanted and arrow.types.is_struct(field.type):
                    _require_once(source.name, source.columns, [inner.name for inner in field.type])
            rows = _rows_at_a_time(file.metadata)
            for batch in file.iter_batches(rows, columns=list(dict.fromkeys(wanted))):
                if batch.nbytes > _BYTES_AT_A_TIME:
                    raise UserError(
                        f"{source.name}, row {number + 1} and those behind it have {batch.nbytes:,}"
                        f" bytes: split the texts"
                    )
                for row in batch.to_pylist():
                    number += 1
                    where = f"{source.name}, row {number}"
                    yield where, _chosen(row, where, source, names)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{source.name} holds text that is not UTF-8 behind row {number}: {error}"
            ) from None
        except (arrow.ArrowException, OSError) as error:
            first_line = str(error).partition("\n")[0]
            raise UserError(f"{source.name} is not a whole parquet file: {first_line}") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; ValueError where a key stands in it twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        number = Counter(key for key, _ in pairs)
        twice = next(key for key in row if number[key] > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return row


def _require_once(where: str, columns: Sequence[str], names: Sequence[str]) -> None:
    """UserError where a column that is read stands there twice."""
    for column in columns:
        if list(names).count(column) > 1:
            raise UserError(f"{where} has two columns {column!r}: rename one")


def _rows_at_a_time(metadata: Any) -> int:
    """Return how many rows are decoded at once: a dictionary may repeat a large cell in each."""
    chunks = (
        metadata.row_group(group).column(column).total_uncompressed_size
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    return max(1, min(_ROWS_AT_A_TIME, _BYTES_AT_A_TIME // max(1, *chunks, 1)))


def _chosen(
    row: Mapping[str, Any], where: str, source: Source, names: Sequence[str] | None = None
) -> list[Any]:
    """What is read of a row. The sides of a pair may stand in an object of the text's column."""
    within = row.get(source.column)
    if len(source.languages) == 2 and isinstance(within, dict):
        row, names = within, None
    for column in source.columns:
        if column not in row:
            raise _missing_column(where, column, names or list(row), source)
    return [row[column] for column in source.columns]


def _documents_of_row(
    values: Sequence[Any], where: str, source: Source, counts: ReadCounts
) -> Iterator[Document]:
    """The documents in what was read of a row, in the order of the source's columns."""
    if len(source.languages) == 2:
        yield from _pair_of_row(values, where, source, counts)
        return
    language = source.languages[0] if source.languages else None
    if source.language_column is not None:
        language = language_code(values[1], where)
    if source.dialogues:
        yield from dialogue_of_value(values[0], language, where, counts)
        return
    known = _annotations_of_row(values, where) if source.annotations else ()
    texts = _texts_of_value(values[0], source.column, where, counts)
    for text, annotations in annotated_row(str(values[0]), texts, known):
        yield Document(text, language, annotations=annotations)


def _annotations_of_row(values: Sequence[Any], where: str) -> tuple[Annotation, ...]:
    """What a row states of its one text."""
    text, *_, stated = values
    if not isinstance(text, str):
        raise UserError(f"{where}: annotations are of one text, and here is none")
    known = stated_annotations(stated, where)
    require_within(known, len(text), where)
    return known


def _pair_of_row(
    values: Sequence[Any], where: str, source: Source, counts: ReadCounts
) -> Iterator[Document]:
    """A document and its translation; nothing where a side is empty or too long for one."""
    first, second = (
        _texts_of_value(value, column, where, counts)
        for value, column in zip(values, source.languages, strict=True)
    )
    if len(first) == len(second) == 1:
        here, there = source.languages
        yield Document(first[0], here, Document(second[0], there))
    else:
        counts.unpaired += 1


def _texts_of_value(value: Any, column: str, where: str, counts: ReadCounts) -> list[str]:
    if value is None:
        value = ""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise UserError(
            f"{where}: {column!r} holds {type(value).__name__}, not text: "
            "choose another column with --column"
        )
    return texts_of_row(value, counts)


def _place(header: Sequence[str], column: str, source: Source) -> int:
    if column not in header:
        raise _missing_column(source.name, column, header, source)
    return header.index(column)


def _missing_column(where: str, column: str, known: Sequence[str], source: Source) -> UserError:
    remedy = f"choose one with {source.options.get(column, '--column')}"
    if column in source.languages:
        remedy = "a table of translations has one named by the code of each language"
    return UserError(f"{where} has no column {column!r}{did_you_mean(column, known)}; {remedy}")


class _Tsv(csv.excel_tab):
    """Tab-separated with quotes as ordinary characters, as published data sets are."""

    quoting = csv.QUOTE_NONE


_DIALECTS: dict[str, type[csv.Dialect]] = {"csv": csv.excel, "tsv": _Tsv}

_TABLES: dict[str, Callable[[BinaryIO, Source, ReadCounts], Iterator[Row]]] = {
    "json": _read_json,
    "jsonl": _read_jsonl,
    "csv": _read_separated,
    "tsv": _read_separated,
    "parquet": _read_parquet,
}
"""Readers of tables by format. Each is one function of (open file, source, counts)."""
