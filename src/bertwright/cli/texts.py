"""Texts that commands read from files."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bertwright.cli.output import log

if TYPE_CHECKING:
    from bertwright.data.document import ReadCounts


def iter_texts(texts: list[str], column: str, format: str | None) -> Iterator[str]:
    """Yield the texts in files, in all languages."""
    from bertwright.data.document import ReadCounts
    from bertwright.data.readers.sources import find_sources
    from bertwright.data.readers.tables import read_documents

    counts = ReadCounts()
    for document in read_documents(find_sources(texts, column, format, counts), counts):
        yield from (side.text for side in document.sides)
    log_invalid_bytes(counts)


def log_invalid_bytes(counts: "ReadCounts") -> None:
    """Log how many bytes of the texts could not be read, if any."""
    if num_invalid := counts.invalid_utf8 + counts.nul_bytes:
        log(f"the texts hold {num_invalid:,} invalid or NUL bytes: convert them to UTF-8")
