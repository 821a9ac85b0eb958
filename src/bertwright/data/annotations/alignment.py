"""Annotated phrases and entities, from a column, a sidecar file or a list of phrases.

Annotations have character offsets in the original text; those of a sidecar file count a line end
as one character, and a byte order mark not, as text mode reads a file. They are mapped to the
cleaned text, and then to its tokens.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.files import loads_json
from bertwright.data.document import PHRASE, Annotation, Document
from bertwright.data.readers.text_lines import read_lines
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.tokenization.words import split_words, word_spans

ANNOTATION_EXAMPLE = '{"start": 0, "stop": 5, "label": "phrase"}'


def parse_annotations(value: Any, location: str) -> tuple[Annotation, ...]:
    """Parse annotations: a list of objects with ``start``, ``stop`` and optional ``label``.

    Offsets count characters; the default label is ``phrase``. Errors: UserError for other values.
    """
    if isinstance(value, str):
        try:
            value = loads_json(value)
        except ValueError:
            value = None
    if not isinstance(value, list):
        raise UserError(f"{location}: annotations are a list of objects with start, stop and label")
    annotations: list[Annotation] = []
    items: list[Any] = value
    for item in items:
        fields: dict[str, Any] = item if isinstance(item, dict) else {}
        start, stop, label = fields.get("start"), fields.get("stop"), fields.get("label", PHRASE)
        match start, stop, label:
            case int(), int(), str() if 0 <= start < stop:
                annotations.append(Annotation(start, stop, label))
            case _:
                raise UserError(f"{location}: {item!r} is not a span: write {ANNOTATION_EXAMPLE}")
    return tuple(annotations)


def to_visible_offsets(
    annotations: Sequence[Annotation], blocks: Iterable[str], location: str
) -> list[Annotation]:
    """Return annotations in order, with offsets that count only the characters that cleaning keeps.

    ``blocks`` are consecutive parts of the annotated text. Errors: UserError for an annotation that
    ends after the text.
    """
    offsets = deque(sorted({offset for a in annotations for offset in (a.start, a.stop)}))
    visible_offsets, num_visible, length = dict[int, int](), 0, 0
    for block in blocks:
        begin, length = length, length + len(block)
        while offsets and offsets[0] <= length:
            offset = offsets.popleft()
            visible_offsets[offset] = num_visible + _count_visible(block[: offset - begin])
        num_visible += _count_visible(block)
    if outside := next((a for a in annotations if a.stop > length), None):
        raise UserError(
            f"{location}: {outside.start} to {outside.stop} is not a span of {length} characters: "
            f"write {ANNOTATION_EXAMPLE}"
        )
    moved = (
        replace(a, start=visible_offsets[a.start], stop=visible_offsets[a.stop])
        for a in annotations
    )
    return sorted((a for a in moved if a.start < a.stop), key=lambda a: (a.start, -a.stop))


def attach_annotations(
    texts: Iterable[str], annotations: Sequence[Annotation]
) -> Iterator[tuple[str, tuple[Annotation, ...]]]:
    """Yield the cleaned parts of a text with their annotations.

    ``annotations`` come from :func:`to_visible_offsets`. Cleaning changes white space only, so
    visible characters keep their index. An annotation that spans two parts is dropped.
    """
    if not annotations:
        yield from ((text, ()) for text in texts)
        return
    before, index = 0, 0
    for text in texts:
        offsets = _visible_offsets(text)
        after, inside = before + len(offsets), list[Annotation]()
        while index < len(annotations) and annotations[index].start < after:
            annotation = annotations[index]
            index += 1
            if before <= annotation.start and annotation.stop <= after:
                start = offsets[annotation.start - before]
                stop = offsets[annotation.stop - 1 - before] + 1
                inside.append(Annotation(start, stop, annotation.label))
        yield text, tuple(inside)
        before = after


def _visible_offsets(text: str) -> list[int]:
    """Return the offsets of characters that cleaning keeps: all but white space and NUL."""
    return [n for n, char in enumerate(text) if not (char.isspace() or char == "\0")]


class PhraseList:
    """A list of phrases and names to find in texts, ignoring case."""

    def __init__(self, entries: Sequence[tuple[str, str]]) -> None:
        self._by_first_word: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for entry, label in entries:
            words = tuple(word.casefold() for word in split_words(entry))
            if words:
                self._by_first_word.setdefault(words[0], []).append((words, label))
        for candidates in self._by_first_word.values():
            candidates.sort(key=lambda pair: -len(pair[0]))

    @classmethod
    def read(cls, path: Path) -> "PhraseList":
        """Read a file of one phrase per line, with the entity type after a tab.

        Errors: UserError for a file that is missing, not UTF-8 or empty.
        """
        entries = [line.partition("\t") for _, line in read_lines(path) if line.strip()]
        if not entries:
            raise UserError(f"--phrases {path} is empty: write one phrase per line")
        return cls([(entry, label.strip() or PHRASE) for entry, _, label in entries])

    def find(self, text: str) -> Iterator[Annotation]:
        """Yield matches from the left, without overlap; the longest phrase wins."""
        spans = word_spans(text)
        words = [text[start:stop].casefold() for start, stop in spans]
        index = 0
        while index < len(words):
            size = 1
            for phrase, label in self._by_first_word.get(words[index], ()):
                if tuple(words[index : index + len(phrase)]) == phrase:
                    size = len(phrase)
                    yield Annotation(spans[index][0], spans[index + size - 1][1], label)
                    break
            index += size


def annotation_token_spans(
    tokenizer: Tokenizer, document: Document, annotations: Sequence[Annotation]
) -> Iterator[tuple[Annotation, int, int]]:
    """Yield annotations of a document with their token spans [start, stop).

    Phrases are in order and do not overlap, and neither do entities: of two overlapping ones, the
    later one is dropped, or the shorter one if both start at the same token.
    """
    if not annotations:
        return
    begins: list[int] = []
    ends: list[int] = []
    part_start = 0
    for part in document.parts:
        _, offsets = tokenizer.encode_with_offsets(part)
        begins += [part_start + begin for begin, _ in offsets]
        ends += [part_start + end for _, end in offsets]
        part_start += len(part) + 1
    next_free = {True: 0, False: 0}
    for annotation in sorted(annotations, key=lambda a: (a.start, -a.stop)):
        start = bisect_left(ends, annotation.start + 1)
        stop = bisect_left(begins, annotation.stop)
        is_phrase = annotation.label == PHRASE
        if next_free[is_phrase] <= start < stop:
            next_free[is_phrase] = stop
            yield annotation, start, stop


def sidecar_path(name: str) -> Path:
    """Return the annotation file of a text: ``story.txt.json`` for ``story.txt``."""
    return Path(f"{name}.json")


def read_sidecar(name: str, blocks: Iterable[str]) -> list[Annotation]:
    """Return the annotations in a text's sidecar file, with offsets of visible characters.

    ``blocks`` are consecutive parts of the text.

    Errors: UserError for a file that is not a list of spans within the text.
    """
    path = sidecar_path(name)
    try:
        value: Any = loads_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a readable JSON file: {error}") from None
    return to_visible_offsets(parse_annotations(value, str(path)), blocks, str(path))


def _count_visible(text: str) -> int:
    """Return the number of characters that cleaning keeps: all but white space and NUL."""
    return len("".join(text.split()).replace("\0", ""))
