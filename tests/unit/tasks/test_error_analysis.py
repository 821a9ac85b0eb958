"""Error analysis: errors agree with the metrics, and numeric ones are sorted by size."""

from typing import Any

import pytest

from bertwright.tasks.evaluation.error_analysis import iter_errors
from bertwright.tasks.formats.examples import Example, ExtractiveQuestion, TaggedSentence
from bertwright.tasks.outputs import OutputType, Prediction
from bertwright.tasks.task import Task


def error_values(output_type: Any, examples: list[Any], values: list[Any]) -> list[Any]:
    task = Task("task", OutputType.parse(output_type))
    predictions = [Prediction(value, 0.5) for value in values]
    return [line["prediction"] for line in iter_errors(task, examples, predictions)]


def test_labels_have_no_order() -> None:
    example = Example("x", label=("red", "old"))
    values = [("old", "red"), ("red", "old"), ("old",), ()]
    assert error_values("labels", [example] * 4, values) == [("old",), ()]


@pytest.mark.parametrize(
    ("references", "value", "is_wrong"),
    [
        (("Red Bird", "a bird"), "the red bird.", False),
        (("red",), "blue", True),
        ((), "", False),
        ((), "red", True),
        (("red",), "", True),
    ],
)
def test_span_errors_follow_exact_match(
    references: tuple[str, ...], value: str, is_wrong: bool
) -> None:
    output_type = OutputType.parse({"kind": "span", "unanswerable": True})
    question = ExtractiveQuestion("q", "t", references, tuple(0 for _ in references))
    assert error_values(output_type, [question], [value]) == ([value] if is_wrong else [])
    exact = output_type.metric("exact")([references], [value])
    assert exact == (0.0 if is_wrong else 1.0)


@pytest.mark.parametrize(
    "output_type", [{"kind": "similarity", "max_label": 5.0}, {"kind": "relevance"}]
)
def test_numeric_errors_are_on_the_scale_of_predictions(output_type: Any) -> None:
    examples = [Example("a", "b", label) for label in (5.0, 0.0, 4.0)]
    # By 0.1, by 0.7 and by 0.3 of the highest label.
    assert error_values(output_type, examples, [0.9, 0.7, 0.5]) == [0.7, 0.5, 0.9]


def test_plain_numbers_have_no_scale() -> None:
    examples = [Example("a", label=label) for label in (100.0, 10.0)]
    assert error_values("number", examples, [98.0, 13.0]) == [13.0, 98.0]


def most_confident(kind: str, examples: list[Any], predictions: list[Prediction]) -> list[Any]:
    task = Task("task", OutputType.parse(kind))
    return [line["prediction"] for line in iter_errors(task, examples, predictions)]


def test_error_confidence_of_a_sentence_is_that_of_its_most_confident_wrong_tag() -> None:
    sentence = TaggedSentence(("a", "b"), ("O", "X"))
    predictions = [Prediction(("O", "O"), (0.99, 0.51)), Prediction(("Y", "O"), (0.4, 0.95))]
    assert most_confident("tags", [sentence] * 2, predictions) == [("Y", "O"), ("O", "O")]


def test_missed_label_has_the_confidence_of_its_absence() -> None:
    example = Example("x", label=("red", "old"))
    predictions = [
        Prediction(("red",), {"red": 0.99, "old": 0.4, "new": 0.1}),  # wrong by 0.6
        Prediction((), {"red": 0.001, "old": 0.002, "new": 0.003}),  # by 0.999
        Prediction(("red", "old", "new"), {"red": 0.9, "old": 0.9, "new": 0.7}),  # by 0.7
    ]
    assert most_confident("labels", [example] * 3, predictions) == [
        (),
        ("red", "old", "new"),
        ("red",),
    ]
