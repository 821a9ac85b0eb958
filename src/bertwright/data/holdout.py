"""Assignment of documents to training and held-out splits, by a hash of their content."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from bertwright.core.errors import UserError
from bertwright.data.document import Document, document_fingerprint
from bertwright.data.tokenization.sentences import sentence_ends

TRAIN, HELDOUT = "train", "heldout"

HELDOUT_TOLERANCE = 1.5
"""Maximum ratio of the requested to the achieved held-out fraction of tokens, or vice versa."""

_CHARACTER_TOLERANCE = 1.4
"""The same ratio in characters; it is stricter, because tokens vary in length."""

_DEFAULT_FRACTION = 0.05

_LOOKAHEAD_DOCUMENTS = 1 << 16
_LOOKAHEAD_CHARACTERS = 1 << 23

SplitAssignment = Iterator[tuple[str, Document]]


def assign_splits(documents: Iterable[Document], fraction: float) -> SplitAssignment:
    """Yield (split, document) for every document; both splits get at least one.

    A document is held out if its fingerprint, scaled to [0, 1), is below ``fraction``. If that
    leaves a split empty among the first documents (all of them in a small text), the document with
    the lowest fingerprint is held out, or the one with the highest is kept for training.

    With few documents or very unequal lengths, some are split at the end of a sentence. In a small
    text, documents are held out in order of fingerprints, and the one that would exceed the
    fraction is split. In a large text, every document longer than that fraction of the first
    documents is split.

    Errors: UserError if the text is a single sentence, pair of translations or dialogue.
    """
    stream = iter(documents)
    first, is_complete = _lookahead(stream)
    if fraction == 0:
        yield from ((TRAIN, document) for document in chain(first, stream))
        return
    if len(first) == 1:
        yield from zip((TRAIN, HELDOUT), _split_document(first[0], fraction), strict=True)
        return
    values = [_fingerprint_value(document) for document in first]
    assigned = _assign_by_fingerprint(first, values, fraction)
    if is_complete:
        heldout = sum(len(document) for split, document in assigned if split == HELDOUT)
        if not _is_close(heldout, fraction * sum(map(len, first))):
            assigned = _assign_by_size(first, values, fraction)
        yield from assigned
        return
    max_length = min(fraction, _DEFAULT_FRACTION) * _LOOKAHEAD_CHARACTERS
    rest = ((HELDOUT if _fingerprint_value(d) < fraction else TRAIN, d) for d in stream)
    for split, document in chain(assigned, rest):
        halves = None
        if len(document) > max_length:
            halves = _split_near(document, fraction * len(document))
        yield from zip((TRAIN, HELDOUT), halves, strict=True) if halves else [(split, document)]


def heldout_warning(requested: float, achieved: float) -> str:
    """Return a warning if the achieved held-out fraction is far from the requested one, else "".

    Both are fractions of the tokens.
    """
    if requested == 0 or _is_close(achieved, requested, HELDOUT_TOLERANCE):
        return ""
    return (
        f"{achieved:.1%} of the tokens are held out instead of {requested:.1%}: there are few "
        f"documents, or some are long and have no sentence ends to split at; separate them by "
        f"blank lines (or rows of a table), add some, or change --heldout"
    )


def _lookahead(stream: Iterator[Document]) -> tuple[list[Document], bool]:
    """Return the first documents, and whether these are all documents."""
    first: list[Document] = []
    size = 0
    for document in stream:
        first.append(document)
        size += len(document)
        if len(first) > 1 and (len(first) >= _LOOKAHEAD_DOCUMENTS or size >= _LOOKAHEAD_CHARACTERS):
            return first, False
    return first, True


def _fingerprint_value(document: Document) -> float:
    """Return the fingerprint of a document as a number in [0, 1)."""
    return document_fingerprint(document) / 2.0**64


def _is_close(size: float, target: float, tolerance: float = _CHARACTER_TOLERANCE) -> bool:
    return target / tolerance <= size <= target * tolerance


def _assign_by_fingerprint(
    documents: Sequence[Document], values: Sequence[float], fraction: float
) -> list[tuple[str, Document]]:
    limit = min(max(fraction, min(values, default=0.0)), highest := max(values, default=1.0))
    return [
        (HELDOUT if value <= limit and value < highest else TRAIN, document)
        for document, value in zip(documents, values, strict=True)
    ]


def _assign_by_size(
    documents: Sequence[Document], values: Sequence[float], fraction: float
) -> list[tuple[str, Document]]:
    """Hold out documents in order of fingerprints until the fraction is reached.

    If a document would exceed it, only the end of that document is held out.
    """
    remaining = target = fraction * sum(map(len, documents))
    heldout: dict[int, list[tuple[str, Document]]] = {}
    order = sorted(range(len(documents)), key=values.__getitem__)
    for index in order:
        document = documents[index]
        is_last = len(heldout) + 1 == len(documents)
        if target - remaining >= target / _CHARACTER_TOLERANCE:
            break
        if len(document) - remaining <= (_CHARACTER_TOLERANCE - 1) * target and not is_last:
            heldout[index] = [(HELDOUT, document)]
            remaining -= len(document)
        elif halves := _split_near(document, remaining):
            heldout[index] = list(zip((TRAIN, HELDOUT), halves, strict=True))
            break
    if not heldout:
        smallest = min(order, key=lambda index: len(documents[index]))
        heldout[smallest] = [(HELDOUT, documents[smallest])]
    assigned = (heldout.get(n, [(TRAIN, document)]) for n, document in enumerate(documents))
    return list(chain.from_iterable(assigned))


def _split_near(document: Document, num_characters: float) -> tuple[Document, Document] | None:
    """Split a document so that the second part has about ``num_characters``.

    Return None if no sentence ends near there.
    """
    if not 0 < num_characters < len(document) or not (ends := _split_offsets(document)):
        return None
    halves = _split_document(document, num_characters / len(document), ends)
    return halves if _is_close(len(halves[1]), num_characters) else None


def _split_offsets(document: Document) -> list[int]:
    """Return the offsets where a document may be split; none for dialogues and translations."""
    if document.translation is not None or document.speakers:
        return []
    return list(sentence_ends(document.text))


def _split_document(
    document: Document, fraction: float, offsets: Sequence[int] = ()
) -> tuple[Document, Document]:
    """Split a document so that the second part is about ``fraction`` of it."""
    text, target = document.text, (1.0 - fraction) * len(document.text)
    offsets = offsets or _split_offsets(document)
    if not offsets:
        raise UserError(
            "the text is a single sentence, so none can be held out: add text, or use --heldout 0"
        )
    end = min(offsets, key=lambda offset: abs(offset - target))
    first = tuple(a for a in document.annotations if a.stop <= end)
    rest = text[end:].strip()
    start = len(text.rstrip()) - len(rest)
    second = tuple(
        replace(a, start=a.start - start, stop=a.stop - start)
        for a in document.annotations
        if a.start >= start
    )
    return (
        replace(document, text=text[:end], annotations=first),
        replace(document, text=rest, annotations=second),
    )
