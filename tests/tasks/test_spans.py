"""Spans: the meaning is seqeval's default mode, for sequences well formed or not."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score
from seqeval.metrics.sequence_labeling import get_entities

from bertwright.tasks.spans import span_f1, spans

TAGS = st.sampled_from(
    [f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC", "A-B")]
    + ["O", "O", "O", "B", "I", "E", "S", "PER", ".", "X-PER", "U-PER", "L-LOC"]
)
SENTENCE = st.lists(TAGS, min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("B-PER B-PER", [("PER", 0, 0), ("PER", 1, 1)]),
        ("I-PER I-PER O I-LOC B-LOC", [("PER", 0, 1), ("LOC", 3, 3), ("LOC", 4, 4)]),
        ("B-PER I-LOC", [("PER", 0, 0), ("LOC", 1, 1)]),
        ("S-PER B-LOC I-LOC E-LOC", [("PER", 0, 0), ("LOC", 1, 3)]),
        ("B I O B", [("_", 0, 1), ("_", 3, 3)]),
        ("B-WORK-OF-ART I-WORK-OF-ART", [("WORK-OF-ART", 0, 1)]),
    ],
    ids=str,
)
def test_spans_in_iob2_iob1_and_bioes(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert spans(tags.split()) == expected


@settings(max_examples=400)
@given(SENTENCE)
def test_spans_are_those_of_seqeval(tags: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns of tags that are none.
        assert spans(tags) == get_entities(tags)


@settings(max_examples=400)
@given(st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=4))
def test_f1_is_that_of_seqeval(sentences: list[list[tuple[str, str]]]) -> None:
    references = [[reference for reference, _ in sentence] for sentence in sentences]
    predictions = [[prediction for _, prediction in sentence] for sentence in sentences]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = f1_score(references, predictions)
    assert span_f1(references, predictions) == pytest.approx(expected, abs=1e-12)


def test_a_span_does_not_run_over_the_end_of_a_sentence() -> None:
    assert span_f1([["B-PER"], ["I-PER"]], [["B-PER", "I-PER"][:1], ["I-PER"]]) == 1.0
    assert span_f1([["O", "B-PER"], ["O"]], [["O", "B-PER"], ["I-PER"]]) == pytest.approx(2 / 3)


def test_predictions_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in the number"):
        span_f1([["O", "O"]], [["O"]])
