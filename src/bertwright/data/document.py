"""Documents before tokenization.

The text of a document is one string with one paragraph per line. Paragraphs are stripped and not
empty, and contain no NUL, carriage return or lone surrogate. To bound memory, long paragraphs and
documents are split, at the end of a sentence if possible.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from bertwright.data.tokenization.characters import replace_lone_surrogates
from bertwright.data.tokenization.sentences import sentence_ends

MAX_PARAGRAPH_LENGTH = 1 << 16
MAX_DOCUMENT_LENGTH = 1 << 20
"""Maximum characters of a paragraph and of a document; longer ones are split."""

PHRASE = "phrase"
"""Label of a phrase; any other label is the type of an entity."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A phrase or entity at the characters [start, stop) of a text."""

    start: int
    stop: int
    label: str = PHRASE


@dataclass(frozen=True, slots=True)
class Document:
    """A text with optional language code, translation and annotations.

    In a dialogue every line is a turn, and ``speakers`` holds the speaker of each turn as a number,
    in order of first appearance.
    """

    text: str
    language: str | None = None
    translation: "Document | None" = None
    annotations: tuple[Annotation, ...] = ()
    speakers: tuple[int, ...] = ()

    @property
    def parts(self) -> list[str]:
        """Return the texts that are tokenized separately: the turns, or the whole text."""
        return self.text.split("\n") if self.speakers else [self.text]

    @property
    def sides(self) -> tuple["Document", ...]:
        """Return the document and its translation, if any."""
        return (self,) if self.translation is None else (self, self.translation)

    @property
    def full_text(self) -> str:
        """Return the text and its translation."""
        return "\n".join(side.text for side in self.sides)

    def __len__(self) -> int:
        """Return the number of characters, including the translation."""
        return sum(len(side.text) for side in self.sides)


@dataclass
class ReadCounts:
    """Counts of files, documents and problems in the input, for the report."""

    files: int = 0
    empty_files: int = 0
    ignored_files: int = 0
    raw_bytes: int = 0
    invalid_utf8: int = 0
    nul_bytes: int = 0
    empty_rows: int = 0
    unpaired_translations: int = 0
    split_paragraphs: int = 0
    split_documents: int = 0
    duplicates: int = 0
    near_duplicates: int = 0
    sources: list[dict[str, str | int]] = field(default_factory=list)


def split_at_blank_lines(lines: Iterable[str], counts: ReadCounts) -> Iterator[str]:
    """Yield the texts of documents separated by empty lines."""
    paragraphs: list[str] = []
    size = 0
    for line in lines:
        line = line.strip()
        if line:
            if size + len(line) > MAX_DOCUMENT_LENGTH:
                counts.split_documents += 1
                yield "\n".join(paragraphs)
                paragraphs, size = [], 0
            paragraphs.append(line)
            size += len(line) + 1
        elif paragraphs:
            yield "\n".join(paragraphs)
            paragraphs, size = [], 0
    if paragraphs:
        yield "\n".join(paragraphs)


def split_long_text(text: str, counts: ReadCounts) -> list[str]:
    """Return the text of a table row as a list of documents, several only if it is too long."""
    lines = _clean_text(text, counts).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    parts = (part for line in lines if line.strip() for part in split_long_line(line, counts))
    texts = list(split_at_blank_lines(parts, counts))
    counts.empty_rows += not texts
    return texts


def split_long_line(line: str, counts: ReadCounts) -> Iterator[str]:
    """Yield a line in parts of bounded length."""
    start = 0
    while len(line) - start > MAX_PARAGRAPH_LENGTH:
        end = start + split_offset(line[start : start + MAX_PARAGRAPH_LENGTH])
        counts.split_paragraphs += 1
        yield line[start:end]
        start = end
    yield line[start:]


def split_offset(text: str) -> int:
    """Return where to split a text: at the last sentence end (or space) in its second half."""
    half = len(text) // 2
    last_end = max((end for end in sentence_ends(text) if end >= half), default=0)
    space = text.rfind(" ", half)
    return last_end or (space if space > 0 else len(text))


def document_fingerprint(document: Document) -> int:
    """Return a 64-bit hash of a document's text."""
    content = "\0".join(side.text for side in document.sides)
    return int.from_bytes(blake2b(content.encode(), digest_size=8).digest(), "little")


def _clean_text(text: str, counts: ReadCounts) -> str:
    if "\0" in text:
        counts.nul_bytes += text.count("\0")
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair
        text = replace_lone_surrogates(text)
        counts.invalid_utf8 += text.count("\ufffd")
    return text
