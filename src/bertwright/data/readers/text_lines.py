"""Lines of text files, plain or gzipped, and of standard input.

Only a line feed ends a line. ``str.splitlines`` would also split at control characters and Unicode
line separators, which some data sets have inside a row.
"""

import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

from bertwright.core.config import did_you_mean, quote
from bertwright.core.errors import UserError
from bertwright.core.files import loads_json, require_file
from bertwright.data.tokenization.characters import replace_lone_surrogates

STANDARD_INPUT = Path("-")

LocatedLine = tuple[str, str]
"""Location of a line for messages, and its text."""

MAX_LINE_BYTES = 1 << 25
"""Maximum bytes of a line."""

MAX_FILE_BYTES = 1 << 29
"""Maximum bytes of a file that is read into memory."""

_BLOCK = 1 << 20
_BYTE_ORDER_MARK = "\ufeff"
_DECOMPRESSION_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file (also ``.gz``) with their numbers, from 1.

    Line ends and a byte order mark are removed.
    Errors: UserError for a missing or damaged file and for a line that is not UTF-8.
    """
    name = display_name(path)
    if path != STANDARD_INPUT:
        require_file(path)
    number = 0
    try:
        with _open(path) as opened:
            for number, line in enumerate(_iter_lines(opened, name), start=1):
                text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
                yield number, text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} line {number}: byte {error.start + 1} is not UTF-8: convert it to UTF-8"
        ) from error
    except _DECOMPRESSION_ERRORS as error:
        raise UserError(
            f"{path} is damaged or truncated after line {number} ({error}): download it again"
        ) from error


def read_located_lines(path: Path) -> Iterator[LocatedLine]:
    """Yield the lines of a file with their location, such as ``train.tsv line 3``."""
    name = display_name(path)
    return ((f"{name} line {number}", line) for number, line in read_lines(path))


def _iter_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield lines with their line ends; UserError for a line that is too long."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise UserError(
                f"{name} line {number} has more than {MAX_LINE_BYTES:,} bytes: split it"
            )
        yield line


def read_all_text(path: Path) -> str:
    """Return the text of a UTF-8 file; errors as for :func:`read_lines`."""
    name, content = display_name(path), bytearray()
    if path != STANDARD_INPUT:
        require_file(path)
    try:
        with _open(path) as opened:
            while block := opened.read(_BLOCK):
                content += block
                if len(content) > MAX_FILE_BYTES:
                    raise UserError(
                        f"{name} has more than {MAX_FILE_BYTES:,} bytes, and it is read into "
                        f"memory: split it"
                    )
        return content.decode("utf-8").removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name} line {line}: a byte is not UTF-8: convert it to UTF-8") from error
    except _DECOMPRESSION_ERRORS as error:
        raise UserError(f"{name} is damaged or truncated ({error}): download it again") from error


def parse_json_object(location: str, line: str) -> dict[str, Any]:
    """Return the JSON object on a line; UserError that names ``location`` for anything else."""
    try:
        value = loads_json(line, require_unique_keys)
    except json.JSONDecodeError as error:
        raise UserError(f"{location} is not JSON: {error.msg} (character {error.colno})") from error
    except ValueError as error:
        raise UserError(f"{location}: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{location}: expected a JSON object, got {type(value).__name__}")
    return heal_surrogates(line, value)


def require_key(
    location: str, mapping: Any, key: str, expected_type: type | tuple[type, ...] = str
) -> Any:
    """Return the value of a key; UserError if it is missing or has another type."""
    if not isinstance(mapping, Mapping) or key not in mapping:
        hint = did_you_mean(key, mapping) if isinstance(mapping, Mapping) else ""
        raise UserError(f"{location}: no key {key!r}{hint}")
    value: Any = mapping[key]
    if not isinstance(value, expected_type):
        names = {str: "a text", list: "a list", int: "a number"}
        expected = expected_type if isinstance(expected_type, tuple) else (expected_type,)
        kinds = " or ".join(names[kind] for kind in expected)
        raise UserError(f"{location}: {key!r} is not {kinds}: {quote(value)}")
    return value


def heal_surrogates(text: str, value: Any) -> Any:
    """Return the value of a JSON text with lone surrogates replaced, as the tokenizer does."""
    if "\\ud" not in text.lower():
        return value
    return json.loads(replace_lone_surrogates(json.dumps(value, ensure_ascii=False)))


def require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dictionary of pairs; ValueError if a key occurs twice (for ``json.loads``)."""
    result = dict(pairs)
    if len(result) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        duplicate = next(key for key in result if counts[key] > 1)
        raise ValueError(f"the key {duplicate!r} occurs twice: rename one")
    return result


def display_name(path: Path) -> str:
    """Return the name of a file for messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def _open(path: Path) -> AbstractContextManager[BinaryIO]:
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    return cast(BinaryIO, gzip.open(path, "rb")) if _is_gzip(path) else open(path, "rb")


def format_suffix(path: Path) -> str:
    """Return the suffix of a file without ``.gz``, such as ``.tsv`` for ``train.tsv.gz``."""
    return Path(path.stem if _is_gzip(path) else path).suffix.lower()


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"
