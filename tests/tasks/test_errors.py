"""What is listed as wrong: what the metrics count as wrong, and of numbers the furthest first."""

from typing import Any

import pytest

from bertwright.tasks.answers import Answer, Prediction
from bertwright.tasks.errors import wrong
from bertwright.tasks.formats.examples import Example, Question, TaggedWords
from bertwright.tasks.task import Task


def listed(answer: Any, examples: list[Any], said: list[Any]) -> list[Any]:
    task = Task("own", Answer.choose(answer))
    predictions = [Prediction(answer, 0.5) for answer in said]
    return [line["prediction"] for line in wrong(task, examples, predictions)]


def test_labels_have_no_order() -> None:
    example = Example("x", label=("red", "old"))
    said = [("old", "red"), ("red", "old"), ("old",), ()]
    assert listed("labels", [example] * 4, said) == [("old",), ()]


@pytest.mark.parametrize(
    ("right", "said", "is_wrong"),
    [
        (("Red Bird", "a bird"), "the red bird.", False),
        (("red",), "blue", True),
        ((), "", False),
        ((), "red", True),
        (("red",), "", True),
    ],
)
def test_a_span_is_right_as_exact_match_has_it(
    right: tuple[str, ...], said: str, is_wrong: bool
) -> None:
    answer = Answer.choose({"kind": "span", "unanswerable": True})
    question = Question("q", "t", right, tuple(0 for _ in right))
    assert listed(answer, [question], [said]) == ([said] if is_wrong else [])
    exact = answer.metric("exact")([right], [said])
    assert exact == (0.0 if is_wrong else 1.0)


@pytest.mark.parametrize("answer", [{"kind": "closeness", "highest": 5.0}, {"kind": "relevance"}])
def test_how_far_is_told_on_the_scale_of_what_is_said(answer: Any) -> None:
    examples = [Example("a", "b", label) for label in (5.0, 0.0, 4.0)]
    # By 0.1, by 0.7 and by 0.3 of the highest label.
    assert listed(answer, examples, [0.9, 0.7, 0.5]) == [0.7, 0.5, 0.9]


def test_of_numbers_the_scale_is_their_own() -> None:
    examples = [Example("a", label=label) for label in (100.0, 10.0)]
    assert listed("number", examples, [98.0, 13.0]) == [13.0, 98.0]


def surest(kind: str, examples: list[Any], said: list[Prediction]) -> list[Any]:
    task = Task("own", Answer.choose(kind))
    return [line["prediction"] for line in wrong(task, examples, said)]


def test_a_sentence_is_as_surely_wrong_as_its_surest_wrong_tag() -> None:
    sentence = TaggedWords(("a", "b"), ("O", "X"))
    said = [Prediction(("O", "O"), (0.99, 0.51)), Prediction(("Y", "O"), (0.4, 0.95))]
    assert surest("tags", [sentence] * 2, said) == [("Y", "O"), ("O", "O")]


def test_a_label_that_is_left_out_is_wrong_as_surely_as_it_is_thought_absent() -> None:
    example = Example("x", label=("red", "old"))
    said = [
        Prediction(("red",), {"red": 0.99, "old": 0.4, "new": 0.1}),  # wrong by 0.6
        Prediction((), {"red": 0.001, "old": 0.002, "new": 0.003}),  # by 0.999
        Prediction(("red", "old", "new"), {"red": 0.9, "old": 0.9, "new": 0.7}),  # by 0.7
    ]
    assert surest("labels", [example] * 3, said) == [(), ("red", "old", "new"), ("red",)]
