"""Splits of examples: every label has its fraction of each, or is warned of."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.data.splits import hold_out, stratified_folds, stratified_order
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example, ExtractiveQuestion, TaggedSentence
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from bertwright.tasks.tuning.cross_validation import cross_validate
from bertwright.tasks.tuning.learning_curve import compute_learning_curve
from small_tasks import classes

CLASS, LABELS = table_task("task", Columns()), table_task("task", Columns(), "labels")
TAGS, SPANS = tagging_task("task"), find_task("squad2")


def labelled(**sizes: int) -> list[Example]:
    """Return texts of each class."""
    texts = [(label, n) for label, size in sizes.items() for n in range(size)]
    return [Example(f"{label} {n}", label=label) for label, n in texts]


def strata(task: Task, examples: Any) -> Counter[str]:
    return Counter(task.output_type.strata(examples))


SIZES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1)


@given(SIZES)
def test_every_class_has_its_fraction_of_what_is_held_out(sizes: dict[str, int]) -> None:
    examples = labelled(**sizes)
    count = max(1, round(0.1 * len(examples)))
    if len(examples) <= count:
        return
    train, held_out = hold_out(CLASS, examples)
    assert sorted(e.text for e in [*train, *held_out]) == sorted(e.text for e in examples)
    assert 1 <= len(held_out) <= count
    if max(sizes.values()) > 1:
        assert strata(CLASS, train).keys() == sizes.keys()
    counts_by_label = strata(CLASS, held_out)
    if min(sizes.values()) > 1:
        assert len(held_out) == count
        for label, size in sizes.items():
            quota = int(count * size / len(examples) + 1e-9)
            assert quota <= counts_by_label[label] <= max(1, quota + 1)
        assert len(counts_by_label) >= min(2, count, len(sizes))


@given(SIZES, st.integers(2, 5), st.integers(0, 3))
def test_every_fold_has_its_fraction_of_every_class(
    sizes: dict[str, int], folds: int, seed: int
) -> None:
    examples = labelled(**sizes)
    if folds > len(examples) // 2:
        return
    parts = stratified_folds(CLASS, examples, folds, seed)
    assert sorted(e.text for _, held_out in parts for e in held_out) == sorted(
        e.text for e in examples
    )
    for label, size in sizes.items():
        counts = [strata(CLASS, held_out)[label] for _, held_out in parts]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == size


@given(SIZES, st.integers(0, 3))
def test_every_prefix_of_the_order_is_stratified(sizes: dict[str, int], seed: int) -> None:
    examples = labelled(**sizes)
    order = stratified_order(CLASS, examples, seed)
    assert sorted(order) == [*range(len(examples))]
    for number in range(1, len(examples) + 1):
        counts_by_label = strata(CLASS, [examples[n] for n in order[:number]])
        for label, size in sizes.items():
            assert abs(counts_by_label[label] - number * size / len(examples)) <= len(sizes)


@pytest.mark.parametrize(
    ("task", "rare", "frequent"),
    [
        (LABELS, Example("a", label=("x", "y")), Example("b", label=("x",))),
        (TAGS, TaggedSentence(("a", "b"), ("O", "B-X")), TaggedSentence(("a", "b"), ("O", "O"))),
        (
            SPANS,
            ExtractiveQuestion("which", "a b", ("b",), (2,)),
            ExtractiveQuestion("which", "a b", ()),
        ),
    ],
    ids=["labels", "tags", "questions"],
)
def test_the_rarest_label_of_an_example_is_held_out_too(
    task: Task, rare: Any, frequent: Any
) -> None:
    examples = [rare, rare, *[frequent] * 18]
    train, held_out = hold_out(task, examples)
    assert [train.count(rare), held_out.count(rare), len(held_out)] == [1, 1, 2]


def rare_class() -> list[Example]:
    return [*labelled(neg=14, pos=15), Example("strange film", label="mixed")]


def test_labels_missing_from_the_held_out_split_are_warned_of(pretrained) -> None:
    result = finetune(pretrained(), CLASS, train=rare_class(), epochs=1)
    (encoded,) = result.run.encoded_tasks
    assert {example.label for example in encoded.dev} == {"neg", "pos"}
    warnings = result.as_dict()["warnings"]
    assert [line for line in warnings if "baseline" not in line] == [
        "task task: the held-out split has no examples of 1 of 3 labels (mixed): the score does "
        "not cover them: give more examples of each"
    ]


@pytest.mark.parametrize(
    "task", [CLASS, LABELS, TAGS, SPANS], ids=lambda task: task.output_type.kind_name()
)
def test_nothing_is_calibrated_on_a_single_reference(pretrained, task: Task) -> None:
    examples_by_kind: dict[str, list[Any]] = {
        "class": [Example("a", label="x"), Example("b", label="y")],
        "labels": [Example("a", label=("x",)), Example("b", label=("y",))],
        "tags": [TaggedSentence(("a",), ("O",)), TaggedSentence(("a", "b"), ("O", "B-X"))],
        "span": [
            ExtractiveQuestion("a", "a b", ("b",), (2,), "1"),
            ExtractiveQuestion("b", "a b", (), (), "2"),
        ],
    }
    train = examples_by_kind[task.output_type.kind_name()] * 8
    result = finetune(pretrained(), task, train=train, dev=train[:1] * 9, epochs=0)
    assert not result.calibrations
    assert any("have the same reference" in line for line in result.as_dict()["warnings"])
    both = finetune(pretrained(), task, train=train, dev=train, epochs=0)
    assert both.calibrations
    assert not any("have the same reference" in line for line in both.as_dict()["warnings"])


def test_folds_and_learning_curves_warn_of_missing_labels(pretrained) -> None:
    messages: list[str] = []
    data, settings = TaskData(CLASS, train=rare_class()), {"epochs": 0}
    cross_validate(pretrained(), data, 2, log=messages.append, settings=settings)
    assert len([line for line in messages if "1 of 3 labels (mixed)" in line]) == 2
    messages.clear()
    dev = TaskData(CLASS, train=rare_class(), dev=classes())
    dev = TaskData(CLASS, train=[*labelled(a=20, b=20, c=1)], dev=labelled(a=2, b=2, c=2))
    compute_learning_curve(pretrained(), dev, [4], log=messages.append, settings=settings)
    assert messages[0].startswith(
        "4 examples, seed 0: task task: there are no training examples of 1 of 3"
    )
