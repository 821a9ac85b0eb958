"""Spans of words read off their tags, and F1 over them.

The meaning is that of ``conlleval`` (Tjong Kim Sang and Buchholz 2000) as seqeval's default mode
keeps it: lenient towards sequences that are not well formed (a span may begin with ``I-``, as in
IOB1), and at home with the ``E-`` and ``S-`` of BIOES. A span is right when its type, its first
and its last word are.
"""

from collections.abc import Sequence

Span = tuple[str, int, int]
"""Type, first word, last word."""


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of a sentence, in order."""
    found: list[Span] = []
    begin, prefix, kind = 0, "O", ""
    for place, tag in enumerate([*tags, "O"]):
        next_prefix, next_kind = tag[0], tag[1:].split("-", 1)[-1] or "_"
        if _ends(prefix, next_prefix, kind != next_kind):
            found.append((kind, begin, place - 1))
        if _begins(prefix, next_prefix, kind != next_kind):
            begin = place
        prefix, kind = next_prefix, next_kind
    return found


def span_f1(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """F1 over the spans of all sentences together; 0 where there are none."""
    if [len(tags) for tags in references] != [len(tags) for tags in predictions]:
        raise ValueError("references and predictions differ in the number of sentences or words")
    wanted, given = set(spans(_joined(references))), set(spans(_joined(predictions)))
    return 2 * len(wanted & given) / max(len(wanted) + len(given), 1)


def _joined(sentences: Sequence[Sequence[str]]) -> list[str]:
    """All sentences in a row, with a word outside every span between them."""
    return [tag for sentence in sentences for tag in (*sentence, "O")]


def _ends(before: str, after: str, other_kind: bool) -> bool:
    return (
        before in "ES" or (before in "BI" and after in "BSO") or (before not in "O." and other_kind)
    )


def _begins(before: str, after: str, other_kind: bool) -> bool:
    return (
        after in "BS" or (before in "ESO" and after in "EI") or (after not in "O." and other_kind)
    )
