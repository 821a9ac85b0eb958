"""Which documents are held out: decided by their content, so their order does not matter."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bertwright.errors import UserError
from bertwright.text.documents import Document, fingerprint
from bertwright.text.sentences import sentence_ends

TRAIN, HELDOUT = "train", "heldout"

_LOOKED_AT_DOCUMENTS = 1 << 10
_LOOKED_AT_CHARACTERS = 1 << 23


def assign_splits(documents: Iterable[Document], share: float) -> Iterator[tuple[str, Document]]:
    """(split, document) for every document; both splits get at least one.

    A document is held out when its fingerprint, as a number in [0, 1), is below the share. Where
    that leaves a split empty among the first documents looked at (all there are, in a small text),
    the one with the lowest fingerprint is held out, or the one with the highest is kept. A text of
    a single document is cut in two at the end of a sentence.

    Errors: UserError for a text of a single sentence, pair of translations or dialogue.
    """
    stream = iter(documents)
    first = _first_few(stream)
    if share == 0:
        yield from ((TRAIN, document) for document in first)
        yield from ((TRAIN, document) for document in stream)
        return
    if len(first) == 1:
        train, heldout = _cut_in_two(first[0], share)
        yield from ((TRAIN, train), (HELDOUT, heldout))
        return
    places = [fingerprint(document) / 2.0**64 for document in first]
    highest = max(places, default=1.0)
    limit = min(max(share, min(places, default=0.0)), highest)
    for document, place in zip(first, places, strict=True):
        yield (HELDOUT if place <= limit and place < highest else TRAIN), document
    for document in stream:
        yield (HELDOUT if fingerprint(document) / 2.0**64 < share else TRAIN), document


def _first_few(stream: Iterator[Document]) -> list[Document]:
    first: list[Document] = []
    size = 0
    for document in stream:
        first.append(document)
        size += len(document)
        if len(first) > 1 and (len(first) >= _LOOKED_AT_DOCUMENTS or size >= _LOOKED_AT_CHARACTERS):
            break
    return first


def _cut_in_two(document: Document, share: float) -> tuple[Document, Document]:
    text, wanted = document.text, (1.0 - share) * len(document.text)
    whole = document.translation is not None or document.speakers
    ends = [] if whole else list(sentence_ends(text))
    if not ends:
        raise UserError(
            "the text is a single sentence, so none can be held out: add text, or say --heldout 0"
        )
    end = min(ends, key=lambda place: abs(place - wanted))
    first = tuple(known for known in document.annotations if known.stop <= end)
    later = text[end:].strip()
    cut = len(text.rstrip()) - len(later)
    second = tuple(
        replace(known, start=known.start - cut, stop=known.stop - cut)
        for known in document.annotations
        if known.start >= cut
    )
    return (
        replace(document, text=text[:end], annotations=first),
        replace(document, text=later, annotations=second),
    )
