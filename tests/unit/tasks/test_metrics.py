"""Metrics: known values and bounds, and no warnings where a metric is undefined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.outputs.output_type import MetricFunction

REFERENCES = ["0", "0", "0", "1", "1", "2"]
PREDICTIONS = ["0", "0", "1", "1", "0", "0"]

PLAIN = ("class", "number", "tags")


def metric(output_type: str, name: str) -> MetricFunction:
    return OutputType.parse(output_type).metric(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", 3 / 6),
        ("macro-f1", (4 / 7 + 1 / 2 + 0) / 3),
        ("micro-f1", 3 / 6),
        ("positive-f1", 1 / 2),
        # (right x all - sum of products) / sqrt(...), over counts 3, 2, 1 and 4, 2, 0.
        ("matthews", (3 * 6 - (12 + 4 + 0)) / np.sqrt((36 - 20) * (36 - 14))),
    ],
)
def test_classes(name: str, expected: float) -> None:
    assert metric("class", name)(REFERENCES, PREDICTIONS) == pytest.approx(expected)


def test_correlations() -> None:
    references, predictions = [1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 9.0, 100.0]
    assert metric("number", "spearman")(references, predictions) == pytest.approx(1.0)
    assert metric("number", "pearson")(references, predictions) == pytest.approx(
        np.corrcoef(references, predictions)[0, 1]
    )
    assert metric("number", "negative-mean-squared-error")([1.0, 2.0], [1.0, 4.0]) == -2.0


def test_tags_count_every_word_once() -> None:
    references, predictions = [["A", "B"], ["A"]], [["A", "A"], ["A"]]
    assert metric("tags", "accuracy")(references, predictions) == pytest.approx(2 / 3)
    assert metric("tags", "macro-f1")(references, predictions) == pytest.approx((4 / 5 + 0) / 2)


def test_macro_f1_averages_over_the_reference_classes() -> None:
    references = ["a", "a", "b"]
    assert metric("class", "macro-f1")(references, ["a", "a", "c"]) == pytest.approx((1 + 0) / 2)
    assert metric("class", "macro-f1")(references, ["a", "a", "a"]) == pytest.approx(0.8 / 2)


@pytest.mark.parametrize("output_type", PLAIN)
def test_references_have_the_best_score(output_type: str) -> None:
    references = {
        "class": ["0", "1", "1", "0"],
        "number": [0.5, 1.5, 3.0, 2.0],
        "tags": [["B-X", "I-X", "O"], ["B-Y"]],
    }[output_type]
    best = {"negative-mean-squared-error": 0.0}
    for name, score in OutputType.parse(output_type).metrics.items():
        assert score(references, references) == pytest.approx(best.get(name, 1.0)), name


@pytest.mark.parametrize(
    ("output_type", "references", "predictions"),
    [
        ("class", ["0", "1", "0"], ["1", "0", "1"]),
        ("class", ["0", "0", "0"], ["1", "1", "1"]),
        ("number", [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]),
        ("number", [1.0, 2.0, 3.0], [0.5, 0.5, 0.5]),
        ("number", [1.0], [1.0]),
        ("tags", [["O", "O"]], [["B-X", "I-X"]]),
    ],
)
def test_undefined_metrics_are_zero_without_warnings(
    output_type: str, references: list[str], predictions: list[str]
) -> None:
    for name, score in OutputType.parse(output_type).metrics.items():
        assert score(references, predictions) <= 0.0, name


@given(st.lists(st.tuples(st.sampled_from("012"), st.sampled_from("012")), min_size=1))
def test_micro_f1_of_single_labels_is_accuracy(pairs: list[tuple[str, str]]) -> None:
    references, predictions = [r for r, _ in pairs], [p for _, p in pairs]
    accuracy = metric("class", "accuracy")(references, predictions)
    assert metric("class", "micro-f1")(references, predictions) == pytest.approx(accuracy)


def test_unknown_metric_suggests_a_known_one() -> None:
    with pytest.raises(UserError, match=r"no metric 'macrof1' .*did you mean 'macro-f1'"):
        metric("class", "macrof1")
