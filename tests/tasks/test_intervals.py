"""Intervals: the figure of sums is the metric, its interval that of drawn examples."""

from typing import Any, ClassVar

import numpy as np
import pytest

from bertwright.tasks import intervals as module
from bertwright.tasks.answers import Answer, ClassAnswer, Prediction
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.formats.examples import Example, Options, Question, TaggedWords
from bertwright.tasks.intervals import intervals, lead
from bertwright.tasks.task import Task

NUMBER = 60
DRAW = np.random.default_rng(0)


def drawn(names: list[str]) -> list[str]:
    return [names[n] for n in DRAW.integers(0, len(names), NUMBER)]


def of_classes(names: list[str]) -> tuple[list[Any], list[Any]]:
    return [Example(str(n), label=a) for n, a in enumerate(drawn(names))], drawn(names)


def of_labels() -> tuple[list[Any], list[Any]]:
    some = [("a",), (), ("a", "b"), ("b", "c"), ("c",)]
    right, said = ([some[n] for n in DRAW.integers(0, 5, NUMBER)] for _ in range(2))
    return [Example(str(n), label=a) for n, a in enumerate(right)], said


def of_numbers() -> tuple[list[Any], list[Any]]:
    right = DRAW.normal(3, 2, NUMBER)
    examples = [Example(str(n), label=float(value)) for n, value in enumerate(right)]
    return examples, (right + DRAW.normal(0, 2, NUMBER)).tolist()


def of_tags() -> tuple[list[Any], list[Any]]:
    tags, words = ["O", "B-X", "I-X", "B-Y"], ("a", "b", "c")
    right, said = (
        [tuple(tags[n] for n in DRAW.integers(0, 4, 3)) for _ in range(NUMBER)] for _ in range(2)
    )
    return [TaggedWords(words, own) for own in right], said


def of_options() -> tuple[list[Any], list[Any]]:
    examples = [Options("a", ("b", "c", "d"), label=n % 3) for n in range(NUMBER)]
    return examples, DRAW.integers(0, 3, NUMBER).tolist()


def of_questions() -> tuple[list[Any], list[Any]]:
    examples = [
        Question("which", "a red bird", () if n % 3 else ("red bird",), (2,) * (n % 3 == 0))
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
def test_the_interval_of_every_metric_is_about_its_score(case: str) -> None:
    answer, metrics, (examples, said) = CASES[case]
    task = Task("own", Answer.choose(answer), metrics=metrics)
    predictions = [Prediction(own) for own in said]
    scores = task.score(examples, predictions)
    found = intervals(task, examples, predictions, scores)
    for name, score in scores.items():
        ends = found[name]
        assert ends is not None, name
        assert ends[0] <= score <= ends[1]
        assert ends[0] < ends[1]
    again = lead(task, examples, predictions, predictions)
    assert (again.value, again.low, again.high) == (0.0, 0.0, 0.0)


def test_an_accuracy_is_as_uncertain_as_the_binomial_says() -> None:
    right = [n < 320 for n in range(400)]
    examples = [Example(str(n), label="1") for n in range(400)]
    predictions = [Prediction("1" if own else "0") for own in right]
    task = Task("own", Answer.choose("class"), metrics=("accuracy",))
    ends = intervals(task, examples, predictions, {"accuracy": 0.8})["accuracy"]
    half = 1.96 * (0.8 * 0.2 / 400) ** 0.5
    assert ends == pytest.approx([0.8 - half, 0.8 + half], abs=0.006)


def test_many_examples_are_drawn_in_groups_with_the_same_interval(monkeypatch) -> None:
    answer, metrics, _ = CASES["class"]
    task = Task("own", Answer.choose(answer), metrics=metrics)
    right = np.random.default_rng(1).integers(0, 3, 4000)
    said = np.where(np.random.default_rng(2).random(4000) < 0.7, right, 0)
    examples = [Example(str(n), label=str(own)) for n, own in enumerate(right)]
    predictions = [Prediction(str(own)) for own in said]
    scores = task.score(examples, predictions)
    whole = intervals(task, examples, predictions, scores)
    monkeypatch.setattr(module, "MAX_UNITS", 500)
    grouped = intervals(task, examples, predictions, scores)
    for name in scores:
        assert grouped[name] == pytest.approx(whole[name], abs=0.006)


def test_a_metric_of_ones_own_that_is_no_mean_has_no_interval() -> None:
    def worst(right: Any, said: Any) -> float:
        return min(float(a == b) for a, b in zip(right, said, strict=True))

    class Own(ClassAnswer):
        metrics: ClassVar[Any] = {"worst": worst}

    task = Task("own", Own(), metrics=("worst",))
    examples = [Example("a", label="1"), Example("b", label="0")]
    predictions = [Prediction("1"), Prediction("1")]
    assert intervals(task, examples, predictions, {"worst": 0.0}) == {"worst": None}


def test_one_example_has_no_interval() -> None:
    task = find_task("sst-2")
    found = intervals(task, [Example("a", label="1")], [Prediction("1")], {"accuracy": 1.0})
    assert found == {"accuracy": None}
