"""Texts with an id and perhaps a title: one per line of plain text, or per row of a table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.core.messages import printable_name
from bertwright.data.document import ReadCounts
from bertwright.data.readers.sources import TextSource
from bertwright.data.readers.streams import decode_text, read_bytes, split_lines
from bertwright.data.readers.tables import MAX_ROW_LENGTH, open_source, read_rows

ID_COLUMN, TITLE_COLUMN = "id", "title"


@dataclass(frozen=True, slots=True)
class IdentifiedText:
    """A text with its id, and with its title if it has one.

    A part of a text has the characters [start, stop) of it.
    """

    id: str
    text: str
    title: str | None = None
    start: int | None = None
    stop: int | None = None

    def part(self, start: int, stop: int) -> "IdentifiedText":
        """Return the part of the text with characters [start, stop) of :attr:`content`."""
        title_length = len(self.content) - len(self.text)
        start, stop = max(start - title_length, 0), max(stop - title_length, 0)
        return replace(self, text=self.text[start:stop], start=start, stop=stop)

    @property
    def content(self) -> str:
        """Return the title and the text, as they are encoded."""
        return f"{self.title} {self.text}" if self.title else self.text


def read_identified_texts(
    sources: Sequence[TextSource], counts: ReadCounts
) -> Iterator[IdentifiedText]:
    """Yield the texts of all sources in order, in bounded memory; empty ones are left out.

    The id is that of the column ``id``, or else the file's name with the number of the line or row,
    such as ``news.txt:17``; the title is that of the column ``title``. Files of the same name have
    the folders, too, in which they differ.
    Errors: UserError for translations, which are two texts.
    """
    for source, name in zip(sources, _distinct_names(sources), strict=True):
        if source.translation_path is not None or len(source.languages) == 2:
            raise UserError(f"{source.name} holds translations: name the file of one language")
        rows = (
            _read_lines(source, counts) if source.format == "txt" else _read_table(source, counts)
        )
        for number, (location, text, id_value, title) in enumerate(rows, start=1):
            text = _as_text(text, source.column, location)
            if not text.strip():
                counts.empty_rows += 1
                continue
            identifier = _as_text(id_value, ID_COLUMN, location) or f"{name}:{number}"
            title = _as_text(title, TITLE_COLUMN, location).strip()
            yield IdentifiedText(identifier, text.strip(), title or None)


def _distinct_names(sources: Sequence[TextSource]) -> list[str]:
    """Return the name of each file, or the end of its path where several have the same name."""
    paths = [printable_name(source.name).split("/") for source in sources]
    num_files = Counter(path[-1] for path in paths)
    repeated = [path[:-1] for path in paths if num_files[path[-1]] > 1]
    levels = zip(*repeated, strict=False)
    num_common = len(list(takewhile(lambda folders: len(set(folders)) == 1, levels)))
    return ["/".join(path[num_common if num_files[path[-1]] > 1 else -1 :]) for path in paths]


_Row = tuple[str, Any, Any, Any]
"""Location, text, id and title of a row."""


def _read_lines(source: TextSource, counts: ReadCounts) -> Iterator[_Row]:
    with open_source(source.name) as raw:
        texts = decode_text(read_bytes(raw, source.name, counts), source.name, counts)
        lines = split_lines(texts, source.name, MAX_ROW_LENGTH)
        for number, line in enumerate(lines, start=1):
            yield f"{source.name}, line {number}", line, None, None


def _read_table(source: TextSource, counts: ReadCounts) -> Iterator[_Row]:
    table = replace(source, optional_columns=(ID_COLUMN, TITLE_COLUMN))
    for location, (text, *_, identifier, title) in read_rows(table, counts):
        yield location, text, identifier, title


def _as_text(value: Any, column: str, location: str) -> str:
    """Return a text, or a whole number as text; an empty one for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if column == ID_COLUMN and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UserError(f"{location}: {column!r} is not a text: {quote(value)}")
