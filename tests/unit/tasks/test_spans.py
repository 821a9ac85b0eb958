"""Entity spans: every scheme is decoded, as in seqeval's default mode, also where ill-formed.

Tags of no scheme are refused.
"""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score
from seqeval.metrics.sequence_labeling import get_entities

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import find_task, tagging_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.metrics.entity_spans import entity_spans, span_f1

TAGS = st.sampled_from(
    [f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC", "A-B")]
    + ["O", "O", "O", "B", "I", "E", "S"]
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
        ("I-PER E-PER I-PER", [("PER", 0, 1), ("PER", 2, 2)]),
        ("I-PER E-PER E-PER O E-LOC", [("PER", 0, 1), ("PER", 2, 2), ("LOC", 4, 4)]),
        ("U-PER B-LOC I-LOC L-LOC U-LOC", [("PER", 0, 0), ("LOC", 1, 3), ("LOC", 4, 4)]),
        ("B-PER L-PER B-PER L-PER", [("PER", 0, 1), ("PER", 2, 3)]),
        ("S-PER B-LOC M-LOC E-LOC", [("PER", 0, 0), ("LOC", 1, 3)]),
        ("W-PER W-PER B-LOC M-LOC E-LOC", [("PER", 0, 0), ("PER", 1, 1), ("LOC", 2, 4)]),
    ],
    ids=str,
)
def test_spans_of_every_scheme(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entity_spans(tags.split()) == expected


@settings(max_examples=400)
@given(SENTENCE)
def test_spans_match_seqeval(tags: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns of tags that are none.
        assert entity_spans(tags) == get_entities(tags)


@settings(max_examples=400)
@given(st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=4))
def test_f1_matches_seqeval(sentences: list[list[tuple[str, str]]]) -> None:
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


SENTENCES = ("U-PER O B-LOC L-LOC U-LOC", "B-PER I-PER L-PER U-PER")


def test_bilou_is_scored_as_bioes_is_with_other_letters() -> None:
    as_bioes = str.maketrans("LU", "ES")
    right = [sentence.split() for sentence in SENTENCES]
    wrong = [["O", *tags[1:]] for tags in right]
    renamed = [
        [[f"{tag[0].translate(as_bioes)}{tag[1:]}" for tag in tags] for tags in sentences]
        for sentences in (right, wrong)
    ]
    assert span_f1(right, wrong) == span_f1(*renamed) == span_f1(renamed[0], wrong)
    assert span_f1(right, wrong) == pytest.approx(f1_score(*renamed))
    assert span_f1(right, renamed[0]) == 1.0


@pytest.mark.parametrize(
    "tags", ["X-PER O", "PER O LOC", "PER-B O", "B_PER I_PER O", "B-PER L-PER S-PER", "domain=en O"]
)
def test_tags_of_no_scheme_are_refused(tags: str) -> None:
    with pytest.raises(UserError, match="do not encode spans"):
        span_f1([tags.split()], [["O"] * len(tags.split())])
    with pytest.raises(UserError, match="do not encode spans"):
        span_f1([["O"] * len(tags.split())], [tags.split()])


def tagged_as(*tags: str) -> list[TaggedSentence]:
    return [TaggedSentence(tuple("abcdefgh"[: len(tags)]), tags)] * 12


def test_tags_of_no_scheme_are_refused_before_anything_is_trained() -> None:
    train, dev = tagged_as("B-PER", "O"), tagged_as("X-PER", "O")
    with pytest.raises(UserError, match="X-PER"):
        TaskData(find_task("ner"), train=dev).load_splits()
    with pytest.raises(UserError, match="X-PER"):
        TaskData(find_task("ner"), train=train, dev=dev).load_splits()


def test_tags_of_words_are_scored_word_by_word() -> None:
    words = tagged_as("DET", "-LRB-", "S", "NOUN-X")
    task, _, _ = TaskData(tagging_task("task"), train=words).load_splits()
    assert task.metrics == ("accuracy", "macro-f1")
    task, _, _ = TaskData(tagging_task("task"), train=tagged_as("U-PER", "O")).load_splits()
    assert task.metrics == ("span-f1", "accuracy")
