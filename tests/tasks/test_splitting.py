"""Parts of examples: every label has its fraction of each, or the lack of it is said."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.folds import cross_validate
from bertwright.tasks.formats.examples import Example, Question, TaggedWords
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.learning_curve import learning_curve
from bertwright.tasks.splitting import folds_of, held_out, nested_order
from bertwright.tasks.task import Task
from small_tasks import classes

CLASS, LABELS = table_task("own", Columns()), table_task("own", Columns(), "labels")
TAGS, SPANS = tagging_task("own"), find_task("squad2")


def labelled(**sizes: int) -> list[Example]:
    """So many texts of each class."""
    texts = [(label, n) for label, size in sizes.items() for n in range(size)]
    return [Example(f"{label} {n}", label=label) for label, n in texts]


def strata(task: Task, examples: Any) -> Counter[str]:
    return Counter(task.answer.strata(examples))


SIZES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1)


@given(SIZES)
def test_every_class_has_its_fraction_of_what_is_held_out(sizes: dict[str, int]) -> None:
    examples = labelled(**sizes)
    count = max(1, round(0.1 * len(examples)))
    if len(examples) <= count:
        return
    learned, judged = held_out(CLASS, examples)
    assert sorted(e.first for e in [*learned, *judged]) == sorted(e.first for e in examples)
    assert 1 <= len(judged) <= count
    if max(sizes.values()) > 1:
        assert strata(CLASS, learned).keys() == sizes.keys()
    found = strata(CLASS, judged)
    if min(sizes.values()) > 1:
        assert len(judged) == count
        for label, size in sizes.items():
            quota = int(count * size / len(examples) + 1e-9)
            assert quota <= found[label] <= max(1, quota + 1)
        assert len(found) >= min(2, count, len(sizes))


@given(SIZES, st.integers(2, 5), st.integers(0, 3))
def test_every_fold_has_its_fraction_of_every_class(
    sizes: dict[str, int], folds: int, seed: int
) -> None:
    examples = labelled(**sizes)
    if folds > len(examples) // 2:
        return
    parts = folds_of(CLASS, examples, folds, seed)
    assert sorted(e.first for _, judged in parts for e in judged) == sorted(
        e.first for e in examples
    )
    for label, size in sizes.items():
        counts = [strata(CLASS, judged)[label] for _, judged in parts]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == size


@given(SIZES, st.integers(0, 3))
def test_every_beginning_of_a_learning_curve_is_stratified(
    sizes: dict[str, int], seed: int
) -> None:
    examples = labelled(**sizes)
    order = nested_order(CLASS, examples, seed)
    assert sorted(order) == [*range(len(examples))]
    for number in range(1, len(examples) + 1):
        found = strata(CLASS, [examples[n] for n in order[:number]])
        for label, size in sizes.items():
            assert abs(found[label] - number * size / len(examples)) <= len(sizes)


@pytest.mark.parametrize(
    ("task", "rare", "frequent"),
    [
        (LABELS, Example("a", label=("x", "y")), Example("b", label=("x",))),
        (TAGS, TaggedWords(("a", "b"), ("O", "B-X")), TaggedWords(("a", "b"), ("O", "O"))),
        (SPANS, Question("which", "a b", ("b",), (2,)), Question("which", "a b", ())),
    ],
    ids=["labels", "tags", "questions"],
)
def test_the_rarest_label_of_an_example_is_held_out_too(
    task: Task, rare: Any, frequent: Any
) -> None:
    examples = [rare, rare, *[frequent] * 18]
    learned, judged = held_out(task, examples)
    assert [learned.count(rare), judged.count(rare), len(judged)] == [1, 1, 2]


def rare_class() -> list[Example]:
    return [*labelled(neg=14, pos=15), Example("strange film", label="mixed")]


def test_a_class_of_one_example_is_learned_and_what_does_not_judge_is_said(pretrained) -> None:
    result = finetune(pretrained(), CLASS, train=rare_class(), epochs=1)
    (part,) = result.training.parts
    assert {example.label for example in part.dev} == {"neg", "pos"}
    said = result.as_dict()["warnings"]
    assert [line for line in said if "baseline" not in line] == [
        "task own: the held-out part has no example of 1 of 3 labels (mixed): its score says "
        "nothing of them: give more examples of each"
    ]


@pytest.mark.parametrize("task", [CLASS, LABELS, TAGS, SPANS], ids=lambda task: task.answer.name)
def test_nothing_is_fitted_to_held_out_examples_of_one_answer(pretrained, task: Task) -> None:
    of: dict[str, list[Any]] = {
        "class": [Example("a", label="x"), Example("b", label="y")],
        "labels": [Example("a", label=("x",)), Example("b", label=("y",))],
        "tags": [TaggedWords(("a",), ("O",)), TaggedWords(("a", "b"), ("O", "B-X"))],
        "span": [Question("a", "a b", ("b",), (2,), "1"), Question("b", "a b", (), (), "2")],
    }
    train = of[task.answer.name] * 8
    result = finetune(pretrained(), task, train=train, dev=train[:1] * 9, epochs=0)
    assert not result.calibrations
    assert any("have one answer" in line for line in result.as_dict()["warnings"])
    both = finetune(pretrained(), task, train=train, dev=train, epochs=0)
    assert both.calibrations
    assert not any("have one answer" in line for line in both.as_dict()["warnings"])


def test_folds_and_sizes_say_what_they_lack(pretrained) -> None:
    said: list[str] = []
    data, settings = TaskData(CLASS, train=rare_class()), {"epochs": 0}
    cross_validate(pretrained(), data, 2, say=said.append, settings=settings)
    assert len([line for line in said if "1 of 3 labels (mixed)" in line]) == 2
    said.clear()
    dev = TaskData(CLASS, train=rare_class(), dev=classes())
    dev = TaskData(CLASS, train=[*labelled(a=20, b=20, c=1)], dev=labelled(a=2, b=2, c=2))
    learning_curve(pretrained(), dev, [4], say=said.append, settings=settings)
    assert said[0].startswith("4 examples, seed 0: task own: no training example is of 1 of 3")
