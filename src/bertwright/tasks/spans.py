"""Spans of words read off their tags, and F1 over them.

A tag is a prefix, a hyphen and a type, or ``O`` outside of all spans. Schemes differ in their
prefixes: IOB1, IOB2 and IO have ``B`` and ``I``, IOE has ``I`` and ``E``, BIOES ends with ``E`` and
has ``S`` for a single word, BILOU says ``L`` and ``U`` for these, BMES and BMEWO say ``M`` for
``I`` and BMEWO ``W`` for ``S``. Read as BIOES all of them have one meaning, that of ``conlleval``
(Tjong Kim Sang and Buchholz 2000) and of seqeval's default mode, lenient towards sequences that are
not well formed: a span may begin with ``I-``. A span is right when its type, its first and its last
word are.
"""

from collections.abc import Iterable, Sequence

from bertwright.errors import UserError

Span = tuple[str, int, int]
"""Type, first word, last word."""

OUTSIDE = "O"

SCHEMES = {
    "IOB": "BI",
    "IOE": "IE",
    "BIOES": "BIES",
    "BILOU": "BILU",
    "BMES": "BMES",
    "BMEWO": "BMEW",
}
"""The prefixes of every scheme."""

_AS_BIOES = dict(zip("BIESLUMW", "BIESESIS", strict=True))


def scheme_of(tags: Iterable[str]) -> str:
    """Return the first scheme that has the prefixes of all tags.

    Errors: UserError, naming the tags, where there is none.
    """
    stated = set(tags) - {OUTSIDE}
    prefixes = {_prefix(tag) for tag in stated}
    for name, known in SCHEMES.items():
        if prefixes <= {*known}:
            return name
    alien = sorted(tag for tag in stated if _prefix(tag) not in _AS_BIOES) or sorted(stated)
    raise UserError(
        f"spans cannot be read off the tags {', '.join(alien[:5])}: known are "
        f"{', '.join(SCHEMES)} (B-PER, I-PER, O): write the tags in one of them, or score every "
        f"word by accuracy"
    )


def are_of_words(tags: Iterable[str]) -> bool:
    """Return whether tags are those of words, as parts of speech, and of no scheme of spans."""
    stated = set(tags)
    typed = [tag for tag in stated if "-" in tag and _prefix(tag) in _AS_BIOES]
    return not typed and OUTSIDE not in stated and not stated <= {*_AS_BIOES}


def spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of a sentence, in order.

    Errors: UserError for tags of no scheme.
    """
    scheme_of(tags)
    found: list[Span] = []
    begin, prefix, kind = 0, OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        next_prefix = _AS_BIOES.get(_prefix(tag), OUTSIDE)
        next_kind = tag[2:] or "_" if next_prefix != OUTSIDE else "_"
        if _ends(prefix, next_prefix, kind != next_kind):
            found.append((kind, begin, place - 1))
        if _begins(prefix, next_prefix, kind != next_kind):
            begin = place
        prefix, kind = next_prefix, next_kind
    return found


def span_f1(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """Return F1 over the spans of all sentences together; 0 where there are none.

    References and predictions may be of two schemes. Errors: UserError for tags of no scheme.
    """
    if [len(tags) for tags in references] != [len(tags) for tags in predictions]:
        raise ValueError("references and predictions differ in the number of sentences or words")
    right, predicted = set(spans(_joined(references))), set(spans(_joined(predictions)))
    return 2 * len(right & predicted) / max(len(right) + len(predicted), 1)


def _joined(sentences: Sequence[Sequence[str]]) -> list[str]:
    """All sentences in a row, with a word outside every span between them."""
    return [tag for sentence in sentences for tag in (*sentence, OUTSIDE)]


def _prefix(tag: str) -> str:
    """Return what stands before the hyphen; the whole tag where there is none."""
    return tag.partition("-")[0]


def _ends(before: str, after: str, other_kind: bool) -> bool:
    return (
        before in "ES" or (before in "BI" and after in "BSO") or (before != OUTSIDE and other_kind)
    )


def _begins(before: str, after: str, other_kind: bool) -> bool:
    return after in "BS" or (before in "ESO" and after in "EI") or (after != OUTSIDE and other_kind)
