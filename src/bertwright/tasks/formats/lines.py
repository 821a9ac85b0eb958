"""The lines of a text file, plain or gzipped, and of standard input.

A line ends at a line feed and nowhere else: some data sets carry control characters and Unicode
line separators inside a row, at which ``str.splitlines`` would break it.
"""

import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

from bertwright.errors import UserError
from bertwright.files import json_value, require_file
from bertwright.text.characters import healed

STANDARD_INPUT = Path("-")

Line = tuple[str, str]
"""Where a line stands, for messages, and its text."""

LONGEST_LINE = 1 << 25
"""Bytes of one line, which is one example."""

LONGEST_FILE = 1 << 29
"""Bytes of a file that is read whole."""

_BLOCK = 1 << 20
_BYTE_ORDER_MARK = "\ufeff"
_DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file (``.gz`` is unpacked) with their numbers, from 1.

    Line feeds, carriage returns before them and a byte order mark are taken off.
    Errors: UserError for a missing or damaged file and for a line that is not UTF-8.
    """
    name = name_of(path)
    if path != STANDARD_INPUT:
        require_file(path)
    number = 0
    try:
        with _opened(path) as opened:
            for number, line in enumerate(_bounded(opened, name), start=1):
                text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
                yield number, text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} line {number}: byte {error.start + 1} is not UTF-8: convert it to UTF-8"
        ) from error
    except _DAMAGE as error:
        raise UserError(
            f"{path} is damaged or cut short after line {number} ({error}): fetch it again"
        ) from error


def located_lines(path: Path) -> Iterator[Line]:
    """Return the same lines, each with its file and number as messages name it."""
    name = name_of(path)
    return ((f"{name} line {number}", line) for number, line in read_lines(path))


def _bounded(opened: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield lines with their ends; UserError for one that is longer than any text."""
    number = 0
    while line := opened.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise UserError(f"{name} line {number} has more than {LONGEST_LINE:,} bytes: split it")
        yield line


def whole_text(path: Path) -> str:
    """Return all of a UTF-8 file, with errors as of :func:`read_lines`."""
    name, content = name_of(path), bytearray()
    if path != STANDARD_INPUT:
        require_file(path)
    try:
        with _opened(path) as opened:
            while block := opened.read(_BLOCK):
                content += block
                if len(content) > LONGEST_FILE:
                    raise UserError(
                        f"{name} has more than {LONGEST_FILE:,} bytes, and it is read whole: "
                        f"split it"
                    )
        return content.decode("utf-8").removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name} line {line}: a byte is not UTF-8: convert it to UTF-8") from error
    except _DAMAGE as error:
        raise UserError(f"{name} is damaged or cut short ({error}): fetch it again") from error


def json_object(where: str, line: str) -> dict[str, Any]:
    """The JSON object on a line; UserError, which says ``where``, for anything else."""
    try:
        row = json_value(line, lambda pairs: _once_each(where, pairs))
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not JSON: {error.msg} (character {error.colno})") from error
    except ValueError as error:
        raise UserError(f"{where} is not JSON that can be read: {error}") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(row).__name__}")
    return writable(line, row)


def writable(text: str, found: Any) -> Any:
    """What was found in a text of JSON, in which that can be written again: healed, where it spells
    half of a surrogate pair, as the tokenizer would heal it."""
    if "\\ud" not in text.lower():
        return found
    return json.loads(healed(json.dumps(found, ensure_ascii=False)))


def _once_each(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise UserError(f"{where}: the key {twice!r} stands there twice: rename one")
    return row


def name_of(path: Path) -> str:
    """What messages call a file."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    return cast(BinaryIO, gzip.open(path, "rb")) if _is_gzip(path) else open(path, "rb")


def suffix_of(path: Path) -> str:
    """The suffix that tells the layout: ``.tsv`` of ``train.tsv.gz``."""
    return Path(path.stem if _is_gzip(path) else path).suffix.lower()


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"
