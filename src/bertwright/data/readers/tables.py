"""Readers of plain text, JSON, JSON lines, CSV, TSV and Parquet, each also .gz or .zst.

A source or a column may state the language of texts. A source of translations states two languages.
"""

import csv
import json
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.files import explain_full_disk, loads_json
from bertwright.core.messages import count_noun
from bertwright.core.object_storage import StorageReader, storage_url
from bertwright.data.annotations.alignment import (
    attach_annotations,
    parse_annotations,
    read_sidecar,
    to_visible_offsets,
)
from bertwright.data.document import (
    Annotation,
    Document,
    ReadCounts,
    split_at_blank_lines,
    split_long_text,
)
from bertwright.data.hub.reference import HubDataset
from bertwright.data.languages import language_code
from bertwright.data.readers.dialogues import parse_dialogue
from bertwright.data.readers.parquet import parquet_rows, require_unique_columns
from bertwright.data.readers.sources import HUB_FORMAT, STANDARD_INPUT, TextSource
from bertwright.data.readers.streams import bounded_lines, decode_text, read_bytes, split_lines
from bertwright.data.readers.text_lines import require_unique_keys

MAX_ROW_LENGTH = 1 << 25
"""Maximum characters of a row."""


_MAX_JSON_LENGTH = 1 << 28
"""Maximum characters of a JSON file, which is read into memory."""


TableRow = tuple[str, Sequence[Any]]
"""Location of a table row for messages, and its values in the order of the source's columns."""


def read_documents(sources: Sequence[TextSource], counts: ReadCounts) -> Iterator[Document]:
    """Yield the documents of all sources in order, in bounded memory."""
    for source in sources:
        if source.translation_path is not None:
            yield from _read_translations(source, source.translation_path, counts)
        elif source.format == "txt":
            with open_source(source.name) as raw:
                yield from _read_txt(raw, source, counts)
        else:
            for location, values in read_rows(source, counts):
                yield from _row_to_documents(values, location, source, counts)


def read_rows(source: TextSource, counts: ReadCounts) -> Iterator[TableRow]:
    """Yield the rows of a table."""
    if source.format == HUB_FORMAT:
        yield from _read_hub(source, counts)
        return
    with open_source(source.name) as raw:
        yield from _TABLE_READERS[source.format](raw, source, counts)


@contextmanager
def open_source(name: str) -> Generator[BinaryIO]:
    """Open a file or standard input; UserError if it cannot be read."""
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    if (url := storage_url(name)) is not None:
        with StorageReader(url) as reader:
            yield cast(BinaryIO, reader)
        return
    try:
        with open(name, "rb") as raw:
            yield raw
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}") from None


def _read_txt(raw: BinaryIO, source: TextSource, counts: ReadCounts) -> Iterator[Document]:
    file_annotations: list[Annotation] = []
    if source.annotations_column is not None:
        ignored = ReadCounts()
        blocks = decode_text(read_bytes(raw, source.name, ignored), source.name, ignored)
        file_annotations = read_sidecar(source.name, blocks)
        raw.seek(0)
    blocks = decode_text(read_bytes(raw, source.name, counts), source.name, counts)
    language = source.languages[0] if source.languages else None
    texts = split_at_blank_lines(bounded_lines(blocks, counts), counts)
    for text, annotations in attach_annotations(texts, file_annotations):
        if source.is_dialogue:
            yield from parse_dialogue(text.split("\n"), language, source.name, counts)
        else:
            yield Document(text, language, annotations=annotations)


def _read_translations(
    source: TextSource, translation_path: str, counts: ReadCounts
) -> Iterator[Document]:
    """Yield line n of one file with line n of the other as its translation."""
    names = (source.name, translation_path)
    with open_source(source.name) as first, open_source(translation_path) as second:
        sides = [
            split_lines(
                decode_text(read_bytes(raw, name, counts), name, counts), name, MAX_ROW_LENGTH
            )
            for raw, name in zip((first, second), names, strict=True)
        ]
        for number, pair in enumerate(zip_longest(*sides)):
            if None in pair:
                short, long = names if pair[0] is None else names[::-1]
                raise UserError(
                    f"{short} ends after line {number:,} and {long} is longer: line n of one must "
                    f"be the translation of line n of the other"
                )
            yield from _row_to_documents(pair, f"{source.name}, line {number + 1}", source, counts)


def _read_jsonl(raw: BinaryIO, source: TextSource, counts: ReadCounts) -> Iterator[TableRow]:
    texts = decode_text(read_bytes(raw, source.name, counts), source.name, counts)
    for number, line in enumerate(split_lines(texts, source.name, MAX_ROW_LENGTH), start=1):
        if not line.strip():
            continue
        location = f"{source.name}, line {number}"
        try:
            row = loads_json(line, require_unique_keys)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{location} is not JSON: {error.msg} (character {error.colno})"
            ) from None
        except ValueError as error:
            raise UserError(f"{location} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise UserError(f"{location} is not a JSON object: each line must be {{...}}")
        yield location, _select_columns(row, location, source)


def _read_json(raw: BinaryIO, source: TextSource, counts: ReadCounts) -> Iterator[TableRow]:
    """Yield the rows of a JSON list; if a row is a list, its columns are named 0, 1, 2 ..."""
    parts, size = list[str](), 0
    for part in decode_text(read_bytes(raw, source.name, counts), source.name, counts):
        parts.append(part)
        size += len(part)
        if size > _MAX_JSON_LENGTH:
            raise UserError(
                f"{source.name} has more than {_MAX_JSON_LENGTH:,} characters, and JSON is read "
                f"into memory: write one row per line and rename it to .jsonl"
            )
    text = "".join(parts)
    try:
        rows = loads_json(text, require_unique_keys) if text.strip() else []
    except ValueError as error:
        raise UserError(f"{source.name} is not JSON: {error}") from None
    if not isinstance(rows, list):
        raise UserError(
            f"{source.name} is not a JSON list of rows: if each line is an object, use "
            "--format jsonl"
        )
    items: list[Any] = rows
    for number, row in enumerate(items, start=1):
        location = f"{source.name}, row {number}"
        if isinstance(row, list):
            values: list[Any] = row
            row = {str(index): value for index, value in enumerate(values)}
        if not isinstance(row, dict):
            raise UserError(f"{location} is neither an object nor a list: each row must be one")
        yield location, _select_columns(row, location, source)


def _read_separated(raw: BinaryIO, source: TextSource, counts: ReadCounts) -> Iterator[TableRow]:
    texts = decode_text(read_bytes(raw, source.name, counts), source.name, counts)
    lines = split_lines(texts, source.name, MAX_ROW_LENGTH)
    header, indices = list[str](), list[int | None]()
    for line, row in separated_rows(lines, source.name, is_tsv=source.format == "tsv"):
        if not row:
            continue
        if not header:
            columns = (*source.columns, *source.optional_columns)
            require_unique_columns(source.name, columns, row)
            header, indices = row, [_column_index(row, name, source) for name in columns]
            continue
        location = f"{source.name}, line {line}"
        if len(row) != len(header):
            raise UserError(
                f"{location} has {count_noun(len(row), 'column')}, and the first line {len(header)}"
            )
        yield location, [None if index is None else row[index] for index in indices]


def separated_rows(
    lines: Iterable[str], name: str, is_tsv: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each row of a TSV or CSV file, with the number of its first line.

    CSV has quotes (RFC 4180); TSV has none, as in published data sets. An empty line has no fields.
    Errors: UserError for a quote that is not closed, and for a row that is too long.
    """
    if is_tsv:
        yield from ((n, line.split("\t") if line else []) for n, line in enumerate(lines, start=1))
        return
    size = 0

    def bounded_lines() -> Iterator[str]:
        nonlocal size
        for line in lines:
            size += len(line)
            if size > MAX_ROW_LENGTH:
                raise csv.Error(f"it has more than {MAX_ROW_LENGTH:,} characters")
            yield f"{line}\n"

    csv.field_size_limit(MAX_ROW_LENGTH)
    rows, number = csv.reader(bounded_lines(), strict=True), 1
    try:
        for row in rows:
            size = 0
            yield number, row
            number = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{name}: the row that begins in line {number} is not CSV ({error}): close its quotes, "
            f"and double quotes inside"
        ) from None


def _read_parquet(raw: BinaryIO, source: TextSource, counts: ReadCounts) -> Iterator[TableRow]:
    from pyarrow import types

    column_names: list[str] = []

    def select(schema: Any) -> list[str]:
        column_names.extend(schema.names)
        names = (*source.columns, source.column, *source.optional_columns)
        columns = [name for name in names if name in schema.names]
        require_unique_columns(source.name, columns, schema.names)
        for field in schema:
            if field.name in columns and types.is_struct(field.type):
                inner_names = [inner.name for inner in field.type]
                require_unique_columns(source.name, source.columns, inner_names)
        return list(dict.fromkeys(columns))

    with explain_full_disk(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as plain:
        # Parquet is read from its end, so a stream is stored first.
        for block in read_bytes(raw, source.name, counts):
            plain.write(block)
        plain.seek(0)
        if not plain.read(1):
            return
        for number, row in parquet_rows(plain, source.name, select):
            location = f"{source.name}, row {number}"
            yield location, _select_columns(row, location, source, column_names)


def _read_hub(source: TextSource, counts: ReadCounts) -> Iterator[TableRow]:
    """Yield the rows of a data set on the Hub; record its commit and a hash of what was read."""
    from bertwright.data.hub.rows import open_split

    rows = open_split(HubDataset.parse(source.name), source.split)
    languages = source.languages if len(source.languages) == 2 else ()
    names = (*source.columns, source.column, *source.optional_columns)
    columns = [name for name in names if name in rows.columns]
    _select_columns(
        dict.fromkeys(rows.columns) | dict.fromkeys(languages), source.name, source, rows.columns
    )
    digest, size = sha256(), 0
    for number, row in enumerate(rows.read(list(dict.fromkeys(columns))), start=1):
        location = f"{source.name}, {source.split} row {number}"
        values = _select_columns(row, location, source, rows.columns)
        content = json.dumps(values, ensure_ascii=False, default=str).encode(errors="replace")
        digest.update(content)
        size += len(content)
        yield location, values
    name = f"{source.name} {source.split} {rows.commit}"
    counts.files += 1
    counts.raw_bytes += size
    counts.sources.append({"name": name, "bytes": size, "sha256": digest.hexdigest()})


def _select_columns(
    row: Mapping[str, Any],
    location: str,
    source: TextSource,
    column_names: Sequence[str] | None = None,
) -> list[Any]:
    """Return the values to read from a row; the text column may be an object of translations."""
    value = row.get(source.column)
    if len(source.languages) == 2 and isinstance(value, dict):
        row, column_names = value, None
    for column in source.columns:
        if column not in row:
            raise _missing_column_error(location, column, column_names or list(row), source)
    return [row.get(column) for column in (*source.columns, *source.optional_columns)]


def _row_to_documents(
    values: Sequence[Any], location: str, source: TextSource, counts: ReadCounts
) -> Iterator[Document]:
    """Yield the documents of a row, given its values in the order of the source's columns."""
    if len(source.languages) == 2:
        yield from _row_to_translation_pair(values, location, source, counts)
        return
    language = source.languages[0] if source.languages else None
    if source.language_column is not None:
        language = language_code(values[1], location)
    if source.is_dialogue:
        yield from parse_dialogue(values[0], language, location, counts)
        return
    row_annotations = _row_annotations(values, location) if source.annotations_column else ()
    texts = _cell_to_texts(values[0], source.column, location, counts)
    for text, annotations in attach_annotations(texts, row_annotations):
        yield Document(text, language, annotations=annotations)


def _row_annotations(values: Sequence[Any], location: str) -> list[Annotation]:
    text, *_, value = values
    if not isinstance(text, str):
        raise UserError(f"{location}: annotations need a text, and the row has none")
    return to_visible_offsets(parse_annotations(value, location), [text], location)


def _row_to_translation_pair(
    values: Sequence[Any], location: str, source: TextSource, counts: ReadCounts
) -> Iterator[Document]:
    """Yield a document with its translation; nothing if a side is empty or too long."""
    first, second = (
        _cell_to_texts(value, column, location, counts)
        for value, column in zip(values, source.languages, strict=True)
    )
    if len(first) == len(second) == 1:
        language, other = source.languages
        yield Document(first[0], language, Document(second[0], other))
    else:
        counts.unpaired_translations += 1


def _cell_to_texts(value: Any, column: str, location: str, counts: ReadCounts) -> list[str]:
    if value is None:
        value = ""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise UserError(
            f"{location}: {column!r} holds {type(value).__name__}, not text: "
            "choose another column with --column"
        )
    return split_long_text(value, counts)


def _column_index(header: Sequence[str], column: str, source: TextSource) -> int | None:
    """Return the index of a column; None for a missing optional one."""
    if column not in header:
        if column in source.optional_columns:
            return None
        raise _missing_column_error(source.name, column, header, source)
    return header.index(column)


def _missing_column_error(
    location: str, column: str, columns: Sequence[str], source: TextSource
) -> UserError:
    remedy = f"choose one with {source.column_options.get(column, '--column')}"
    if column in source.languages:
        remedy = "the columns of a table of translations are language codes"
    return UserError(
        f"{location} has no column {column!r}{did_you_mean(column, columns)}; {remedy}"
    )


_TABLE_READERS: dict[str, Callable[[BinaryIO, TextSource, ReadCounts], Iterator[TableRow]]] = {
    "json": _read_json,
    "jsonl": _read_jsonl,
    "csv": _read_separated,
    "tsv": _read_separated,
    "parquet": _read_parquet,
}
"""Readers of tables by format."""
