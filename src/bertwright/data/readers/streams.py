"""Decompression, decoding and line splitting of files, in bounded memory."""

import codecs
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import chain
from typing import BinaryIO

from bertwright.core.errors import UserError
from bertwright.core.messages import printable_name
from bertwright.data.document import ReadCounts, split_long_line

_BLOCK_BYTES = 1 << 18
_ZSTD_INPUT_BYTES = 1 << 10
"""Compressed bytes that are decompressed at once; four bytes may expand to 128 KB."""

_ZSTD_WINDOW_BYTES = 1 << 27
"""Maximum window size in bytes, as in the zstd program."""

_BINARY_CHECK_BYTES = 1 << 16
_MIN_BINARY_CHECK_BYTES = 64
_MAX_BINARY_FRACTION = 0.3

_MAGIC = {
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "a zip archive or an office document",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\x7fELF": "a program",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"PAR1": "a parquet file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}


def read_bytes(raw: BinaryIO, name: str, counts: ReadCounts) -> Iterator[bytes]:
    """Yield blocks of a file's decompressed content; record the file in ``counts``.

    Errors: UserError for a truncated or damaged compressed file.
    """
    digest, size = sha256(), 0

    def blocks() -> Iterator[bytes]:
        nonlocal size
        while block := raw.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            yield block

    yield from _decompress(blocks(), name)
    counts.files += 1
    counts.empty_files += size == 0
    counts.raw_bytes += size
    counts.sources.append(
        {"name": printable_name(name), "bytes": size, "sha256": digest.hexdigest()}
    )


def decode_text(blocks: Iterable[bytes], name: str, counts: ReadCounts) -> Iterator[str]:
    r"""Yield UTF-8 blocks as text: line ends are ``\n``, NUL is removed, invalid bytes are U+FFFD.

    Errors: UserError if the file is not text.
    """
    pending, carriage_return, first = b"", False, True
    for block, last in _mark_last(filter(None, blocks)):
        data = pending + block
        if first:
            data = data.removeprefix(codecs.BOM_UTF8)
            _require_text(data[:_BINARY_CHECK_BYTES], name)
            first = False
        text, used = _decode_block(data, last, counts)
        pending = data[used:]
        if "\0" in text:
            counts.nul_bytes += text.count("\0")
            text = text.replace("\0", "")
        if carriage_return:
            text = "\r" + text
        carriage_return = text.endswith("\r") and not last
        if carriage_return:
            text = text[:-1]
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if text:
            yield text


def split_lines(texts: Iterable[str], name: str, max_length: int) -> Iterator[str]:
    """Yield complete lines without their line ends.

    Errors: UserError for a line of more than ``max_length`` characters.
    """
    parts: list[str] = []
    size = 0
    for text in texts:
        first, *rest = text.split("\n")
        parts.append(first)
        size += len(first)
        if size > max_length:
            raise UserError(f"{name} holds a line of more than {max_length:,} characters: split it")
        if rest:
            yield "".join(parts)
            *lines, last = rest
            yield from lines
            parts, size = [last], len(last)
    if any(parts):
        yield "".join(parts)


def bounded_lines(texts: Iterable[str], counts: ReadCounts) -> Iterator[str]:
    """Yield lines without their line ends; lines longer than a paragraph may be are split."""
    rest = ""
    for text in texts:
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield from split_long_line(line, counts)
        *parts, rest = split_long_line(rest, counts)
        yield from parts
    if rest:
        yield rest


def _decompress(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    first = next(blocks, b"")
    while len(first) < 4 and (more := next(blocks, b"")):
        first += more
    for magic, unpack in _UNPACKERS.items():
        if first.startswith(magic):
            yield from unpack(chain([first], blocks), name)
            return
    if first:
        yield from chain([first], blocks)


def _gunzip(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(31)
    for block in blocks:
        while block:
            if unpacker.eof:
                if not block.strip(b"\0"):  # padding after the last member
                    break
                unpacker = zlib.decompressobj(31)
            try:
                yield unpacker.decompress(block, _BLOCK_BYTES)
            except zlib.error as error:
                raise UserError(f"{name} is damaged ({error}): download it again") from None
            block = unpacker.unconsumed_tail or unpacker.unused_data
    yield unpacker.flush()
    if not unpacker.eof:
        raise UserError(f"{name} is truncated: its gzip data does not end; download it again")


def _unzstd(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    unpacker = decompressor.decompressobj()
    for block in _rechunk(blocks, _ZSTD_INPUT_BYTES):
        while block:
            if unpacker.eof:
                unpacker = decompressor.decompressobj()
            try:
                yield from _rechunk([unpacker.decompress(block)], _BLOCK_BYTES)
            except zstandard.ZstdError as error:
                if "memory" in str(error):
                    raise UserError(
                        f"{name} needs more than {_ZSTD_WINDOW_BYTES >> 20} MB of memory to "
                        f"decompress: unpack it with zstd -d --long=31"
                    ) from None
                raise UserError(f"{name} is damaged ({error}): download it again") from None
            block = unpacker.unused_data
    if not unpacker.eof:
        raise UserError(f"{name} is truncated: its zstd data does not end; download it again")


def _rechunk(blocks: Iterable[bytes], num_bytes: int) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), num_bytes):
            yield block[start : start + num_bytes]


_UNPACKERS: dict[bytes, Callable[[Iterator[bytes], str], Iterator[bytes]]] = {
    b"\x1f\x8b": _gunzip,
    b"\x28\xb5\x2f\xfd": _unzstd,
}


def _mark_last(blocks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    previous: bytes | None = None
    for block in blocks:
        if previous is not None:
            yield previous, False
        previous = block
    if previous is not None:
        yield previous, True


def _decode_block(data: bytes, last: bool, counts: ReadCounts) -> tuple[str, int]:
    try:
        return codecs.utf_8_decode(data, "strict", last)
    except UnicodeDecodeError:
        text, used = codecs.utf_8_decode(data, "replace", last)
        counts.invalid_utf8 += text.count("\ufffd") - data.count("\ufffd".encode())
        return text, used


def _require_text(head: bytes, name: str) -> None:
    for magic, description in _MAGIC.items():
        if head.startswith(magic):
            raise UserError(f"{name} is {description}, not UTF-8 text: convert it or leave it out")
    if len(head) < _MIN_BINARY_CHECK_BYTES:
        return
    text = head.decode(errors="replace")
    num_binary = sum(text.count(chr(code)) for code in (*range(9), *range(14, 32), 0xFFFD))
    if num_binary > _MAX_BINARY_FRACTION * len(text):
        raise UserError(f"{name} is a binary file, not UTF-8 text: convert it or leave it out")
