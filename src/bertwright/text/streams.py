"""Bytes of a file, plain or compressed, to clean text in bounded memory."""

import codecs
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import chain
from typing import BinaryIO

from bertwright.errors import UserError
from bertwright.text.documents import ReadCounts, cut_line

_BLOCK = 1 << 18
_ZSTD_FED = 1 << 10
"""Bytes that are unpacked at once: four of them may state 128 KB."""

_ZSTD_WINDOW = 1 << 27
"""Bytes of unpacked text that are kept to look back at, as in zstd's own program."""

_LOOKED_AT = 1 << 16
_LEAST_LOOKED_AT = 64
_BINARY_SHARE = 0.3

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
    """Blocks of a file's content, decompressed if it is compressed; records what was read.

    Errors: UserError for a compressed file that is cut short or damaged.
    """
    digest, size = sha256(), 0

    def blocks() -> Iterator[bytes]:
        nonlocal size
        while block := raw.read(_BLOCK):
            digest.update(block)
            size += len(block)
            yield block

    yield from _decompressed(blocks(), name)
    counts.files += 1
    counts.empty_files += size == 0
    counts.raw_bytes += size
    counts.sources.append({"name": name, "bytes": size, "sha256": digest.hexdigest()})


def decode(blocks: Iterable[bytes], name: str, counts: ReadCounts) -> Iterator[str]:
    r"""Text of UTF-8 blocks: line ends as ``\n``, without NUL, invalid bytes as U+FFFD.

    Errors: UserError where the file is not text.
    """
    pending, carriage_return, first = b"", False, True
    for block, last in _and_last(filter(None, blocks)):
        data = pending + block
        if first:
            data = data.removeprefix(codecs.BOM_UTF8)
            _refuse_binary(data[:_LOOKED_AT], name)
            first = False
        text, used = _decode_counted(data, last, counts)
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


def lines(texts: Iterable[str], name: str, longest: int) -> Iterator[str]:
    """Lines without their ends, whole.

    Errors: UserError for a line of more than ``longest`` characters.
    """
    parts: list[str] = []
    size = 0
    for text in texts:
        first, *rest = text.split("\n")
        parts.append(first)
        size += len(first)
        if size > longest:
            raise UserError(f"{name} holds a line of more than {longest:,} characters: split it")
        if rest:
            yield "".join(parts)
            *whole, last = rest
            yield from whole
            parts, size = [last], len(last)
    if any(parts):
        yield "".join(parts)


def bounded_lines(texts: Iterable[str], counts: ReadCounts) -> Iterator[str]:
    """Lines without their ends, cut where they are longer than a paragraph may be."""
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield from cut_line(line, counts)
        *parts, rest = cut_line(rest, counts)
        yield from parts
    if rest:
        yield rest


def _decompressed(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
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
                yield unpacker.decompress(block, _BLOCK)
            except zlib.error as error:
                raise UserError(f"{name} is damaged ({error}): fetch it again") from None
            block = unpacker.unconsumed_tail or unpacker.unused_data
    yield unpacker.flush()
    if not unpacker.eof:
        raise UserError(f"{name} is cut short: its gzip data do not end; fetch it again")


def _unzstd(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    unpacker = decompressor.decompressobj()
    for fed in _in_parts(blocks, _ZSTD_FED):
        while fed:
            if unpacker.eof:
                unpacker = decompressor.decompressobj()
            try:
                yield from _in_parts([unpacker.decompress(fed)], _BLOCK)
            except zstandard.ZstdError as error:
                if "memory" in str(error):
                    raise UserError(
                        f"{name} needs more than {_ZSTD_WINDOW >> 20} MB of memory to unpack: "
                        f"unpack it with zstd -d --long=31"
                    ) from None
                raise UserError(f"{name} is damaged ({error}): fetch it again") from None
            fed = unpacker.unused_data
    if not unpacker.eof:
        raise UserError(f"{name} is cut short: its zstd data do not end; fetch it again")


def _in_parts(blocks: Iterable[bytes], size: int) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), size):
            yield block[start : start + size]


_UNPACKERS: dict[bytes, Callable[[Iterator[bytes], str], Iterator[bytes]]] = {
    b"\x1f\x8b": _gunzip,
    b"\x28\xb5\x2f\xfd": _unzstd,
}


def _and_last(blocks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    previous: bytes | None = None
    for block in blocks:
        if previous is not None:
            yield previous, False
        previous = block
    if previous is not None:
        yield previous, True


def _decode_counted(data: bytes, last: bool, counts: ReadCounts) -> tuple[str, int]:
    try:
        return codecs.utf_8_decode(data, "strict", last)
    except UnicodeDecodeError:
        text, used = codecs.utf_8_decode(data, "replace", last)
        counts.invalid_utf8 += text.count("\ufffd") - data.count("\ufffd".encode())
        return text, used


def _refuse_binary(head: bytes, name: str) -> None:
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise UserError(f"{name} is {what}, not UTF-8 text: convert it or leave it out")
    if len(head) < _LEAST_LOOKED_AT:
        return
    text = head.decode(errors="replace")
    strange = sum(text.count(chr(code)) for code in (*range(9), *range(14, 32), 0xFFFD))
    if strange > _BINARY_SHARE * len(text):
        raise UserError(f"{name} is a binary file, not UTF-8 text: convert it or leave it out")
