"""Which documents are held out: decided by their content, so their order does not matter."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bertwright.errors import UserError
from bertwright.text.documents import Document, fingerprint
from bertwright.text.sentences import sentence_ends

TRAIN, HELDOUT = "train", "heldout"

FACTOR = 1.5
"""How far the fraction that is held out may be from the one that was asked."""

_CLOSE = 1.4
"""The same in characters, of which tokens may have other numbers."""

_USUAL_SHARE = 0.05

_LOOKED_AT_DOCUMENTS = 1 << 16
_LOOKED_AT_CHARACTERS = 1 << 23

Assigned = Iterator[tuple[str, Document]]


def assign_splits(documents: Iterable[Document], share: float) -> Assigned:
    """(split, document) for every document; both splits get at least one.

    A document is held out when its fingerprint, as a number in [0, 1), is below the share. Where
    that leaves a split empty among the first documents looked at (all there are, in a small text),
    the one with the lowest fingerprint is held out, or the one with the highest is kept.

    Where documents are too few or too unlike for that, some are cut in two at the end of a
    sentence: in a small text the one that crosses the share, in the order of their fingerprints; in
    a large one every document that is longer than such a part of what was looked at.

    Errors: UserError for a text of a single sentence, pair of translations or dialogue.
    """
    stream = iter(documents)
    first, complete = _first_few(stream)
    if share == 0:
        yield from ((TRAIN, document) for document in first)
        yield from ((TRAIN, document) for document in stream)
        return
    if len(first) == 1:
        train, heldout = _cut_in_two(first[0], share)
        yield from ((TRAIN, train), (HELDOUT, heldout))
        return
    assigned = _by_fingerprint(first, share)
    if complete:
        yield from assigned if _is_close(assigned, share) else _by_size(first, share)
        return
    longest = min(share, _USUAL_SHARE) * _LOOKED_AT_CHARACTERS
    for split, document in assigned:
        yield from _cut_if_longer(split, document, longest, share)
    for document in stream:
        split = HELDOUT if fingerprint(document) / 2.0**64 < share else TRAIN
        yield from _cut_if_longer(split, document, longest, share)


def heldout_warning(asked: float, achieved: float) -> str:
    """Return what to do about a held-out fraction that is far from the one asked; "" if it is not.

    Both are fractions of the tokens.
    """
    if asked == 0 or asked / FACTOR <= achieved <= asked * FACTOR:
        return ""
    return (
        f"{achieved:.1%} of the tokens are held out where {asked:.1%} were asked: there are few "
        f"documents, or some are long and have no sentences to be cut between; separate them by "
        f"blank lines (or rows of a table), add some, or ask for another --heldout"
    )


def _first_few(stream: Iterator[Document]) -> tuple[list[Document], bool]:
    """The first documents, and whether they are all there are."""
    first: list[Document] = []
    size = 0
    for document in stream:
        first.append(document)
        size += len(document)
        if len(first) > 1 and (len(first) >= _LOOKED_AT_DOCUMENTS or size >= _LOOKED_AT_CHARACTERS):
            return first, False
    return first, True


def _by_fingerprint(documents: Sequence[Document], share: float) -> list[tuple[str, Document]]:
    places = [fingerprint(document) / 2.0**64 for document in documents]
    highest = max(places, default=1.0)
    limit = min(max(share, min(places, default=0.0)), highest)
    return [
        (HELDOUT if place <= limit and place < highest else TRAIN, document)
        for document, place in zip(documents, places, strict=True)
    ]


def _is_close(assigned: Sequence[tuple[str, Document]], share: float) -> bool:
    total = sum(len(document) for _, document in assigned)
    heldout = sum(len(document) for split, document in assigned if split == HELDOUT)
    return share * total / _CLOSE <= heldout <= share * total * _CLOSE


def _by_size(documents: Sequence[Document], share: float) -> Assigned:
    """Hold out documents in the order of their fingerprints until the share is reached, and the end
    of the one that would exceed it."""
    left = asked = share * sum(map(len, documents))
    heldout: dict[int, list[tuple[str, Document]]] = {}
    order = sorted(range(len(documents)), key=lambda number: fingerprint(documents[number]))
    for number in order:
        document = documents[number]
        is_last = len(heldout) + 1 == len(documents)
        if asked - left >= asked / _CLOSE:
            break
        if len(document) - left <= (_CLOSE - 1) * asked and not is_last:
            heldout[number] = [(HELDOUT, document)]
            left -= len(document)
        elif cut := _cut_closely(document, left):
            heldout[number] = list(zip((TRAIN, HELDOUT), cut, strict=True))
            break
    if not heldout:
        smallest = min(order, key=lambda number: len(documents[number]))
        heldout[smallest] = [(HELDOUT, documents[smallest])]
    for number, document in enumerate(documents):
        yield from heldout.get(number, [(TRAIN, document)])


def _cut_closely(document: Document, size: float) -> tuple[Document, Document] | None:
    """A document in two, the second of about ``size`` characters; None where it has no such end of
    a sentence."""
    if not 0 < size < len(document) or not (ends := _ends(document)):
        return None
    cut = _cut_in_two(document, size / len(document), ends)
    return cut if size / _CLOSE <= len(cut[1]) <= size * _CLOSE else None


def _cut_if_longer(split: str, document: Document, longest: float, share: float) -> Assigned:
    if len(document) > longest and (cut := _cut_closely(document, share * len(document))):
        yield from zip((TRAIN, HELDOUT), cut, strict=True)
    else:
        yield split, document


def _ends(document: Document) -> list[int]:
    """Where a document may be cut: a dialogue or a pair of translations nowhere."""
    if document.translation is not None or document.speakers:
        return []
    return list(sentence_ends(document.text))


def _cut_in_two(
    document: Document, share: float, ends: Sequence[int] = ()
) -> tuple[Document, Document]:
    """The beginning of a document, and about the ``share`` at its end."""
    text, wanted = document.text, (1.0 - share) * len(document.text)
    ends = ends or _ends(document)
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
