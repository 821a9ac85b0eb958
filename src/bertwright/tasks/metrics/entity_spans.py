"""Entity spans decoded from tags, and their F1.

A tag is a prefix, a hyphen and a type, or ``O`` outside of all spans. Schemes differ in their
prefixes: IOB1, IOB2 and IO have ``B`` and ``I``; IOE has ``I`` and ``E``; BIOES ends a span with
``E`` and has ``S`` for a single word. BILOU writes ``L`` and ``U`` for these, BMES and BMEWO write
``M`` for ``I``, and BMEWO writes ``W`` for ``S``. Once converted to BIOES, all have the same
meaning, as in ``conlleval`` (Tjong Kim Sang and Buchholz 2000) and seqeval's default mode.
Ill-formed sequences are accepted: a span may begin with ``I-``. A span is correct if its type,
first word and last word are.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from bertwright.core.errors import UserError
from bertwright.tasks.metrics.metrics import FloatArray64, Metric, MetricSums

EntitySpan = tuple[str, int, int]
"""Type, first word and last word of a span."""

OUTSIDE = "O"

TAGGING_SCHEMES = {
    "IOB": "BI",
    "IOE": "IE",
    "BIOES": "BIES",
    "BILOU": "BILU",
    "BMES": "BMES",
    "BMEWO": "BMEW",
}
"""The tag prefixes of each scheme."""

_AS_BIOES = dict(zip("BIESLUMW", "BIESESIS", strict=True))


def tagging_scheme(tags: Iterable[str]) -> str:
    """Return the first scheme that includes the prefixes of all tags.

    Errors: UserError naming the tags, if there is none.
    """
    typed_tags = set(tags) - {OUTSIDE}
    prefixes = {_prefix(tag) for tag in typed_tags}
    for name, scheme_prefixes in TAGGING_SCHEMES.items():
        if prefixes <= {*scheme_prefixes}:
            return name
    unknown = sorted(tag for tag in typed_tags if _prefix(tag) not in _AS_BIOES) or sorted(
        typed_tags
    )
    raise UserError(
        f"the tags {', '.join(unknown[:5])} do not encode spans: known schemes are "
        f"{', '.join(TAGGING_SCHEMES)} (B-PER, I-PER, O): convert the tags to one of them, or use "
        f"the metric accuracy"
    )


def are_word_tags(tags: Iterable[str]) -> bool:
    """Return whether tags describe single words, such as parts of speech, instead of spans."""
    distinct = set(tags)
    span_tags = [tag for tag in distinct if "-" in tag and _prefix(tag) in _AS_BIOES]
    return not span_tags and OUTSIDE not in distinct and not distinct <= {*_AS_BIOES}


def entity_spans(tags: Sequence[str]) -> list[EntitySpan]:
    """Return the spans of a sentence, in order.

    Errors: UserError for tags that fit no scheme.
    """
    tagging_scheme(tags)
    spans: list[EntitySpan] = []
    start, prefix, kind = 0, OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        next_prefix = _AS_BIOES.get(_prefix(tag), OUTSIDE)
        next_kind = tag[2:] or "_" if next_prefix != OUTSIDE else "_"
        if _span_ends(prefix, next_prefix, kind != next_kind):
            spans.append((kind, start, index - 1))
        if _span_begins(prefix, next_prefix, kind != next_kind):
            start = index
        prefix, kind = next_prefix, next_kind
    return spans


def _span_sums(
    references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> MetricSums:
    if [len(tags) for tags in references] != [len(tags) for tags in predictions]:
        raise ValueError("references and predictions differ in the number of sentences or words")
    for sentences in (references, predictions):
        tagging_scheme(tag for tags in sentences for tag in tags)
    pairs = [
        (set(entity_spans(a)), set(entity_spans(b)))
        for a, b in zip(references, predictions, strict=True)
    ]
    counts = np.array([(len(a & b), len(a) + len(b)) for a, b in pairs], np.float64)

    def f1(sums: FloatArray64) -> FloatArray64:
        return 2 * sums[..., 0] / np.maximum(sums[..., 1], 1)

    return MetricSums(counts, f1)


span_f1 = Metric(_span_sums)
"""F1 over the spans of all sentences together; 0 if there are none.

References and predictions may use different schemes. Errors: UserError for tags that fit no
scheme."""


def _prefix(tag: str) -> str:
    """Return the part before the hyphen; the whole tag if there is none."""
    return tag.partition("-")[0]


def _span_ends(before: str, after: str, is_other_type: bool) -> bool:
    return (
        before in "ES"
        or (before in "BI" and after in "BSO")
        or (before != OUTSIDE and is_other_type)
    )


def _span_begins(before: str, after: str, is_other_type: bool) -> bool:
    return (
        after in "BS" or (before in "ESO" and after in "EI") or (after != OUTSIDE and is_other_type)
    )
