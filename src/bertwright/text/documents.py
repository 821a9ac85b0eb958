"""Documents: what a text is before it has pieces.

The text of a document is one string: its paragraphs, stripped and not empty, one a line. It holds
no NUL, no carriage return and no lone surrogate. Paragraphs and documents that are too long for
bounded memory are cut, at the end of a sentence where there is one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from bertwright.text.characters import healed
from bertwright.text.sentences import sentence_ends

LONGEST_PARAGRAPH = 1 << 16
LONGEST_DOCUMENT = 1 << 20
"""In characters: the length beyond which a paragraph or a document is cut."""


PHRASE = "phrase"
"""The label of a stretch of text that is a phrase; any other is the kind of an entity."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """The characters [start, stop) of a text are a phrase, or an entity of some kind."""

    start: int
    stop: int
    label: str = PHRASE


@dataclass(frozen=True, slots=True)
class Document:
    """A text; the code of its language where that is known, and its translation where it has one,
    a document in another language; what is known of stretches of it. In a dialogue every line is a
    turn, and ``speakers`` says whose, counted in the order in which they come to speak."""

    text: str
    language: str | None = None
    translation: "Document | None" = None
    annotations: tuple[Annotation, ...] = ()
    speakers: tuple[int, ...] = ()

    @property
    def parts(self) -> list[str]:
        """What is cut into pieces by itself: turns, or the whole text."""
        return self.text.split("\n") if self.speakers else [self.text]

    @property
    def sides(self) -> tuple["Document", ...]:
        """The document, and its translation."""
        return (self,) if self.translation is None else (self, self.translation)

    @property
    def whole_text(self) -> str:
        """All that it says, in every language."""
        return "\n".join(side.text for side in self.sides)

    def __len__(self) -> int:
        """In characters, the translation included."""
        return sum(len(side.text) for side in self.sides)


@dataclass
class ReadCounts:
    """What was met while reading; every number ends up in the report."""

    files: int = 0
    empty_files: int = 0
    ignored_files: int = 0
    raw_bytes: int = 0
    invalid_utf8: int = 0
    nul_bytes: int = 0
    empty_rows: int = 0
    unpaired: int = 0
    cut_paragraphs: int = 0
    cut_documents: int = 0
    duplicates: int = 0
    near_duplicates: int = 0
    sources: list[dict[str, str | int]] = field(default_factory=list)


def texts_at_blank_lines(lines: Iterable[str], counts: ReadCounts) -> Iterator[str]:
    """Texts of documents in lines among which an empty one ends a document."""
    paragraphs: list[str] = []
    size = 0
    for line in lines:
        line = line.strip()
        if line:
            if size + len(line) > LONGEST_DOCUMENT:
                counts.cut_documents += 1
                yield "\n".join(paragraphs)
                paragraphs, size = [], 0
            paragraphs.append(line)
            size += len(line) + 1
        elif paragraphs:
            yield "\n".join(paragraphs)
            paragraphs, size = [], 0
    if paragraphs:
        yield "\n".join(paragraphs)


def texts_of_row(text: str, counts: ReadCounts) -> list[str]:
    """The text of the document in one row of a table: more than one only where it is too long."""
    lines = _cleaned(text, counts).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    whole = (part for line in lines if line.strip() for part in cut_line(line, counts))
    found = list(texts_at_blank_lines(whole, counts))
    counts.empty_rows += not found
    return found


def cut_line(line: str, counts: ReadCounts) -> Iterator[str]:
    """Return a line in parts of bounded length."""
    start = 0
    while len(line) - start > LONGEST_PARAGRAPH:
        end = start + place_to_cut(line[start : start + LONGEST_PARAGRAPH])
        counts.cut_paragraphs += 1
        yield line[start:end]
        start = end
    yield line[start:]


def place_to_cut(text: str) -> int:
    """Where to cut a text that goes on: its last sentence end, or space, in the second half."""
    half = len(text) // 2
    last_end = max((end for end in sentence_ends(text) if end >= half), default=0)
    space = text.rfind(" ", half)
    return last_end or (space if space > 0 else len(text))


def fingerprint(document: Document) -> int:
    """64 bits of what a document says."""
    content = "\0".join(side.text for side in document.sides)
    return int.from_bytes(blake2b(content.encode(), digest_size=8).digest(), "little")


def _cleaned(text: str, counts: ReadCounts) -> str:
    if "\0" in text:
        counts.nul_bytes += text.count("\0")
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair
        text = healed(text)
        counts.invalid_utf8 += text.count("\ufffd")
    return text
