"""Bootstrap intervals: sums reproduce the metrics, and intervals contain the scores."""

from typing import Any, ClassVar

import numpy as np
import pytest

from bertwright.tasks.catalogue import find_task
from bertwright.tasks.evaluation import bootstrap as module
from bertwright.tasks.evaluation.bootstrap import bootstrap_intervals, paired_difference
from bertwright.tasks.formats.examples import (
    Example,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
)
from bertwright.tasks.outputs import ClassificationOutput, MultiLabelOutput, OutputType, Prediction
from bertwright.tasks.task import Task

NUMBER = 60
DRAW = np.random.default_rng(0)


def test_examples_without_any_label_have_a_score() -> None:
    examples = [Example(str(n), label=()) for n in range(4)]
    predictions = [Prediction(()) for _ in examples]
    task = Task("labels", MultiLabelOutput(), labels=("a", "b"))
    scores = {
        name: task.output_type.metrics[name](
            [e.label for e in examples], [p.value for p in predictions]
        )
        for name in ("micro-f1",)
    }
    intervals = bootstrap_intervals(task, examples, predictions, scores)
    assert intervals.keys() == scores.keys()


def drawn(names: list[str]) -> list[str]:
    return [names[n] for n in DRAW.integers(0, len(names), NUMBER)]


def of_classes(names: list[str]) -> tuple[list[Any], list[Any]]:
    return [Example(str(n), label=a) for n, a in enumerate(drawn(names))], drawn(names)


def of_labels() -> tuple[list[Any], list[Any]]:
    some = [("a",), (), ("a", "b"), ("b", "c"), ("c",)]
    right, values = ([some[n] for n in DRAW.integers(0, 5, NUMBER)] for _ in range(2))
    return [Example(str(n), label=a) for n, a in enumerate(right)], values


def of_numbers() -> tuple[list[Any], list[Any]]:
    right = DRAW.normal(3, 2, NUMBER)
    examples = [Example(str(n), label=float(value)) for n, value in enumerate(right)]
    return examples, (right + DRAW.normal(0, 2, NUMBER)).tolist()


def of_tags() -> tuple[list[Any], list[Any]]:
    tags, words = ["O", "B-X", "I-X", "B-Y"], ("a", "b", "c")
    right, values = (
        [tuple(tags[n] for n in DRAW.integers(0, 4, 3)) for _ in range(NUMBER)] for _ in range(2)
    )
    return [TaggedSentence(words, tags_of_sentence) for tags_of_sentence in right], values


def of_options() -> tuple[list[Any], list[Any]]:
    examples = [MultipleChoice("a", ("b", "c", "d"), label=n % 3) for n in range(NUMBER)]
    return examples, DRAW.integers(0, 3, NUMBER).tolist()


def of_questions() -> tuple[list[Any], list[Any]]:
    examples = [
        ExtractiveQuestion(
            "which", "a red bird", () if n % 3 else ("red bird",), (2,) * (n % 3 == 0)
        )
        for n in range(NUMBER)
    ]
    return examples, drawn(["", "red", "red bird"])


def of_pairs() -> tuple[list[Any], list[Any]]:
    examples = [Example(f"q{n // 4}", f"t{n}", float(n % 4 == n // 4 % 4)) for n in range(NUMBER)]
    return examples, DRAW.random(NUMBER).tolist()


CASES: dict[str, tuple[Any, tuple[str, ...], tuple[list[Any], list[Any]]]] = {
    "class": (
        "class",
        ("accuracy", "macro-f1", "micro-f1", "positive-f1", "matthews"),
        of_classes(["0", "1", "2"]),
    ),
    "two classes": ("class", ("matthews", "positive-f1", "accuracy"), of_classes(["0", "1"])),
    "labels": ("labels", ("micro-f1", "macro-f1", "exact"), of_labels()),
    "number": ("number", ("spearman", "pearson", "negative-mean-squared-error"), of_numbers()),
    "tags": ("tags", ("span-f1", "accuracy", "macro-f1"), of_tags()),
    "option": ("option", ("accuracy",), of_options()),
    "span": ({"kind": "span", "unanswerable": True}, ("f1", "exact"), of_questions()),
    "relevance": ("relevance", ("ndcg@10", "mrr@10", "recall@1"), of_pairs()),
}


@pytest.mark.parametrize("case", CASES)
def test_interval_of_every_metric_contains_its_score(case: str) -> None:
    answer, metrics, (examples, values) = CASES[case]
    task = Task("task", OutputType.parse(answer), metrics=metrics)
    predictions = [Prediction(value) for value in values]
    scores = task.score(examples, predictions)
    intervals = bootstrap_intervals(task, examples, predictions, scores)
    for name, score in scores.items():
        ends = intervals[name]
        assert ends is not None, name
        assert ends[0] <= score <= ends[1]
        assert ends[0] < ends[1]
    again = paired_difference(task, examples, predictions, predictions)
    assert (again.value, again.low, again.high) == (0.0, 0.0, 0.0)


def test_accuracy_interval_matches_the_binomial() -> None:
    correct = [n < 320 for n in range(400)]
    examples = [Example(str(n), label="1") for n in range(400)]
    predictions = [Prediction("1" if is_correct else "0") for is_correct in correct]
    task = Task("task", OutputType.parse("class"), metrics=("accuracy",))
    ends = bootstrap_intervals(task, examples, predictions, {"accuracy": 0.8})["accuracy"]
    half = 1.96 * (0.8 * 0.2 / 400) ** 0.5
    assert ends == pytest.approx([0.8 - half, 0.8 + half], abs=0.006)


def test_resampling_in_groups_gives_the_same_interval(monkeypatch) -> None:
    answer, metrics, _ = CASES["class"]
    task = Task("task", OutputType.parse(answer), metrics=metrics)
    right = np.random.default_rng(1).integers(0, 3, 4000)
    values = np.where(np.random.default_rng(2).random(4000) < 0.7, right, 0)
    examples = [Example(str(n), label=str(label)) for n, label in enumerate(right)]
    predictions = [Prediction(str(label)) for label in values]
    scores = task.score(examples, predictions)
    whole = bootstrap_intervals(task, examples, predictions, scores)
    monkeypatch.setattr(module, "MAX_UNITS", 500)
    grouped = bootstrap_intervals(task, examples, predictions, scores)
    for name in scores:
        assert grouped[name] == pytest.approx(whole[name], abs=0.006)


def test_custom_metric_that_is_no_mean_has_no_interval() -> None:
    def worst(right: Any, values: Any) -> float:
        return min(float(a == b) for a, b in zip(right, values, strict=True))

    class CustomOutput(ClassificationOutput):
        metrics: ClassVar[Any] = {"worst": worst}

    task = Task("task", CustomOutput(), metrics=("worst",))
    examples = [Example("a", label="1"), Example("b", label="0")]
    predictions = [Prediction("1"), Prediction("1")]
    assert bootstrap_intervals(task, examples, predictions, {"worst": 0.0}) == {"worst": None}


def test_one_example_has_no_interval() -> None:
    task = find_task("sst-2")
    intervals = bootstrap_intervals(
        task, [Example("a", label="1")], [Prediction("1")], {"accuracy": 1.0}
    )
    assert intervals == {"accuracy": None}
