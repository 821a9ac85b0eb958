"""The lines of a text file, plain or gzipped.

A line ends at a line feed and nowhere else: some data sets carry control characters and Unicode
line separators inside a row, at which ``str.splitlines`` would break it.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from bertwright.errors import UserError

_BYTE_ORDER_MARK = "\ufeff"
_DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file (``.gz`` is unpacked) with their numbers, from 1.

    Line feeds, carriage returns before them and a byte order mark are taken off.
    Errors: UserError for a missing or damaged file and for a line that is not UTF-8.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    number = 0
    try:
        with gzip.open(path, "rb") if _is_gzip(path) else open(path, "rb") as opened:
            for number, line in enumerate(opened, start=1):
                text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
                yield number, text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} line {number}: byte {error.start + 1} is not UTF-8: convert the file to UTF-8"
        ) from error
    except _DAMAGE as error:
        raise UserError(
            f"{path} is damaged or cut short after line {number} ({error}): fetch it again"
        ) from error


def suffix_of(path: Path) -> str:
    """The suffix that tells the layout: ``.tsv`` of ``train.tsv.gz``."""
    return Path(path.stem if _is_gzip(path) else path).suffix.lower()


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"
