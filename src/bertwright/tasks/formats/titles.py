"""Titles of documents, to be generated from their first paragraphs."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from bertwright.data.readers.text_lines import LocatedLine, read_located_lines
from bertwright.tasks.formats.example_reader import ExampleReader
from bertwright.tasks.formats.examples import Example, Examples


class TitleReader(ExampleReader):
    """Documents of a text file: a title line, then a paragraph per line, then an empty line.

    The text is the first ``paragraphs`` paragraphs. Documents without a paragraph are left out.
    """

    kind: Literal["titles"] = "titles"
    paragraphs: int = Field(default=1, ge=1, le=1 << 16)

    @property
    def has_pairs(self) -> bool:
        return False

    def matches(self, lines: Sequence[LocatedLine], labels: Sequence[str]) -> bool:
        """Return whether the lines are documents: each has a title and a paragraph."""
        documents = list(_documents(lines))
        has_end = any(not line.strip() for _, line in lines)
        return has_end and all(len(document) > 1 for document in documents)

    def parse_lines(self, name: str, lines: Iterable[LocatedLine]) -> Examples:
        return [*self._examples(lines, with_labels=False)]

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[Example]:
        return self._examples(read_located_lines(path), with_labels)

    def _examples(self, lines: Iterable[LocatedLine], with_labels: bool) -> Iterator[Example]:
        for document in _documents(lines):
            (location, title), *paragraphs = document
            if paragraphs:
                text = " ".join(line for _, line in paragraphs[: self.paragraphs])
                yield Example(text, label=title if with_labels else None, location=location)


def _documents(lines: Iterable[LocatedLine]) -> Iterator[list[LocatedLine]]:
    """Yield the stripped lines of each document."""
    document: list[LocatedLine] = []
    for location, line in lines:
        if text := line.strip():
            document.append((location, text))
        elif document:
            yield document
            document = []
    if document:
        yield document
