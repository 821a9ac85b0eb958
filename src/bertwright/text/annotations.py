"""Phrases and entities: what is known of stretches of a text, from a column or a list of words.

What is stated of characters must survive the cleaning of a text and its cutting into pieces.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bertwright.errors import UserError
from bertwright.files import json_value
from bertwright.text.documents import PHRASE, Annotation, Document
from bertwright.text.tokenizers import Tokenizer
from bertwright.text.words import word_spans

EXAMPLE = '{"start": 0, "stop": 5, "label": "phrase"}'


def stated_annotations(value: Any, where: str) -> tuple[Annotation, ...]:
    """What is stated of a text: a list of objects with ``start``, ``stop`` and perhaps ``label``,
    in characters; those without a label are phrases.

    Errors: UserError for another value.
    """
    if isinstance(value, str):
        try:
            value = json_value(value)
        except ValueError:
            value = None
    if not isinstance(value, list):
        raise UserError(f"{where}: annotations are a list of objects with start, stop and label")
    found: list[Annotation] = []
    listed: list[Any] = value
    for stated in listed:
        given: dict[str, Any] = stated if isinstance(stated, dict) else {}
        start, stop, label = given.get("start"), given.get("stop"), given.get("label", PHRASE)
        match start, stop, label:
            case int(), int(), str() if 0 <= start < stop:
                found.append(Annotation(start, stop, label))
            case _:
                raise UserError(f"{where}: {stated!r} is no stretch: write {EXAMPLE}")
    return tuple(found)


def require_within(annotations: Iterable[Annotation], length: int, where: str) -> None:
    """UserError where one does not lie within so many characters."""
    for each in annotations:
        if each.stop > length:
            raise UserError(
                f"{where}: {each.start} to {each.stop} is no stretch of {length} characters: "
                f"write {EXAMPLE}"
            )


def among_solid(
    annotations: Iterable[Annotation], place_of: Callable[[int], int]
) -> list[Annotation]:
    """Annotations in order, their places counted among the characters that cleaning keeps;
    ``place_of`` gives the new place of an old one."""
    counted = (replace(a, start=place_of(a.start), stop=place_of(a.stop)) for a in annotations)
    return sorted((a for a in counted if a.start < a.stop), key=lambda a: (a.start, -a.stop))


def annotated(
    texts: Iterable[str], known: Sequence[Annotation]
) -> Iterator[tuple[str, tuple[Annotation, ...]]]:
    """Every document that was made of a text with what is known of it, in its own characters.

    ``known`` is as :func:`among_solid` returns it: cleaning changes white space alone, so a
    character that is none is told by its number among those. What lies in two documents is dropped.
    """
    if not known:
        yield from ((text, ()) for text in texts)
        return
    before, next_known = 0, 0
    for text in texts:
        here = _solid(text)
        after, own = before + len(here), list[Annotation]()
        while next_known < len(known) and known[next_known].start < after:
            each = known[next_known]
            next_known += 1
            if before <= each.start and each.stop <= after:
                start, stop = here[each.start - before], here[each.stop - 1 - before] + 1
                own.append(Annotation(start, stop, each.label))
        yield text, tuple(own)
        before = after


def annotated_row(
    raw: str, texts: Iterable[str], annotations: Sequence[Annotation]
) -> Iterator[tuple[str, tuple[Annotation, ...]]]:
    """The same for the documents of one row, whose annotations count the characters of ``raw``."""
    places = _solid(raw) if annotations else []
    return annotated(texts, among_solid(annotations, partial(bisect_left, places)))


def _solid(text: str) -> list[int]:
    """The places of what cleaning keeps: all but white space and NUL."""
    return [n for n, each in enumerate(text) if not (each.isspace() or each == "\0")]


class WordList:
    """Phrases and names that are looked up in a text, whatever their capitals."""

    def __init__(self, entries: Sequence[tuple[str, str]]) -> None:
        self._by_first: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for entry, label in entries:
            words = tuple(_words(entry))
            if words:
                self._by_first.setdefault(words[0], []).append((words, label))
        for known in self._by_first.values():
            known.sort(key=lambda pair: -len(pair[0]))

    @classmethod
    def read(cls, path: Path) -> "WordList":
        """One phrase a line; what stands behind a tab is the kind of an entity.

        Errors: UserError for a file that cannot be read, or has nothing in it.
        """
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--phrases {path} cannot be read: {error}") from None
        entries = [line.partition("\t") for line in lines if line.strip()]
        if not entries:
            raise UserError(f"--phrases {path} holds nothing: write one phrase a line")
        return cls([(entry, label.strip() or PHRASE) for entry, _, label in entries])

    def find(self, text: str) -> Iterator[Annotation]:
        """Where they stand, from the left, the longest first."""
        spans = word_spans(text)
        words = [text[start:stop].casefold() for start, stop in spans]
        place = 0
        while place < len(words):
            size = 1
            for known, label in self._by_first.get(words[place], ()):
                if tuple(words[place : place + len(known)]) == known:
                    size = len(known)
                    yield Annotation(spans[place][0], spans[place + size - 1][1], label)
                    break
            place += size


def _words(text: str) -> list[str]:
    return [text[start:stop].casefold() for start, stop in word_spans(text)]


def pieces_covered(
    tokenizer: Tokenizer, document: Document, annotations: Sequence[Annotation]
) -> Iterator[tuple[Annotation, int, int]]:
    """The pieces [first, stop) that each annotation of a document reaches into, those of phrases
    and those of entities in order and without overlap: of two that do, the one that begins later
    goes, of two that begin together the shorter."""
    if not annotations:
        return
    begins: list[int] = []
    ends: list[int] = []
    place = 0
    for part in document.parts:
        offsets = tokenizer.offsets(part)
        begins += [place + begin for begin, _ in offsets]
        ends += [place + end for _, end in offsets]
        place += len(part) + 1
    free = {True: 0, False: 0}
    for known in sorted(annotations, key=lambda known: (known.start, -known.stop)):
        first = bisect_left(ends, known.start + 1)
        stop = bisect_left(begins, known.stop)
        is_phrase = known.label == PHRASE
        if free[is_phrase] <= first < stop:
            free[is_phrase] = stop
            yield known, first, stop
