"""Linear heads on frozen features: the minimum of their loss, whatever the task, the scale of the
features or the seed; and no steps where none are stated."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from bertwright.errors import UserError
from bertwright.tasks import linear_heads
from bertwright.tasks.answers import Answer, SpanAnswer
from bertwright.tasks.catalogue import find_task, table_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import load_fine_tuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.learning_curve import learning_curve
from bertwright.tasks.task import Task
from small_tasks import (
    classes,
    numbers,
    options,
    pairs,
    questions,
    several_labels,
    tagged,
)

CLASSES, NUMBERS = table_task("own", Columns()), table_task("own", Columns(), "number")
ALL: dict[str, tuple[Any, Any]] = {
    "class": ("class", classes()),
    "pairs": ("class", pairs()),
    "labels": ("labels", several_labels()),
    "number": ("number", numbers()),
    "tags": ("tags", tagged()),
    "option": ("option", options()),
    "span": (SpanAnswer(unanswerable=True), questions()),
}
every_kind = pytest.mark.parametrize("kind", ALL)


def fitted(model: Any, task: Task, examples: Any, **settings: Any) -> FineTuneResult:
    return finetune(
        model, task, train=examples, dev=examples, adaptation="frozen", calibrate=False, **settings
    )


def features_of(model: Any, task: Task, examples: Any) -> np.ndarray:
    """What the head reads, in standard form."""
    kept: list[Any] = []
    original = linear_heads.fit_linear_head

    def spy(head: Any, part: Any, features: Any, seed: int) -> Any:
        kept.append(head.standard(head.mix(torch.cat(list(features)))).numpy())
        return original(head, part, features, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.tasks.task_training.fit_linear_head", spy)
        fitted(model, task, examples)
    return kept[0]


@pytest.mark.parametrize("strength", [0.1, 10.0])
@pytest.mark.parametrize("basis", [True, False])
def test_a_class_is_that_of_logistic_regression_with_the_same_penalty(
    pretrained, monkeypatch: pytest.MonkeyPatch, strength: float, basis: bool
) -> None:
    monkeypatch.setattr(linear_heads, "STRENGTHS", (strength,))
    monkeypatch.setattr(linear_heads, "MAX_BASIS", 2000 if basis else 0)
    model = pretrained("bert", "encoder.width=128")
    features = features_of(model, CLASSES, classes())
    result = fitted(model, CLASSES, classes())
    l2 = result.training.fits[0]["own"].l2
    assert l2 == pytest.approx(features.shape[1] / strength)
    # Of two classes scikit-learn has one vector of weights, which is the difference of ours.
    peer = LogisticRegression(C=2 / l2, max_iter=5000, tol=1e-8)
    chances = peer.fit(features, [e.label for e in classes()]).predict_proba(features)
    for own, theirs in zip(result.best.predictions[0], chances, strict=True):
        assert list(own.probabilities.values()) == pytest.approx(theirs, abs=2e-3)


def test_a_number_is_that_of_ridge_regression_with_the_same_penalty(
    pretrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_heads, "STRENGTHS", (3.0,))
    model = pretrained("bert")
    features = features_of(model, NUMBERS, numbers())
    result = fitted(model, NUMBERS, numbers())
    # The squared error has no half before it, and the penalty has.
    peer = Ridge(alpha=result.training.fits[0]["own"].l2 / 2)
    theirs = peer.fit(features, [e.label for e in numbers()]).predict(features)
    assert [p.answer for p in result.best.predictions[0]] == pytest.approx(theirs, abs=0.05)


@every_kind
def test_every_task_with_a_linear_head_is_fitted_and_saved(
    pretrained, kind: str, tmp_path: Any
) -> None:
    answer, examples = ALL[kind]
    task = Task("own", Answer.choose(answer))
    result = fitted(pretrained("bert"), task, examples, out=tmp_path / "own")
    begun = fitted(pretrained("bert"), task, examples, epochs=0)
    assert result.scores[0] > begun.scores[0]
    assert len(result.training.epochs_seen) == 1
    assert set(result.as_dict()["l2"]) == {"own"}
    again = load_fine_tuned(tmp_path / "own")
    assert again.predict(examples) == result.model.predict(examples)
    for own, kept in zip(again.predict(examples), result.best.predictions[0], strict=True):
        if kind != "number":
            assert own.answer == kept.answer


def test_seeds_differ_by_no_more_than_the_penalty(pretrained, monkeypatch) -> None:
    monkeypatch.setattr(linear_heads, "STRENGTHS", (1.0,))
    result = fitted(pretrained("bert"), CLASSES, classes(), seeds=3)
    assert len(set(result.scores)) == 1
    assert len(set(result.as_dict()["l2"]["own"])) == 1


def test_the_states_are_read_once_for_all_seeds(pretrained, monkeypatch) -> None:
    calls: list[int] = []
    from bertwright.tasks.kept_states import KeptStates

    original = KeptStates._read

    def spy(self: Any, part: int, rows: Any) -> Any:
        calls.append(part)
        return original(self, part, rows)

    monkeypatch.setattr(KeptStates, "_read", spy)
    fitted(pretrained("bert"), CLASSES, classes(), seeds=3)
    assert len(calls) == 2  # what is trained on, and what judges


@pytest.mark.parametrize(
    "stated", [{"epochs": 2}, {"rate": 1e-2}, {"patience": 1}, {"batch": 8}, {"warmup": 0.0}]
)
def test_stated_steps_are_taken(pretrained, stated: dict[str, Any]) -> None:
    result = fitted(pretrained("bert"), CLASSES, classes(), compile=False, **stated)
    assert not result.training.fits
    assert len(result.training.epochs_seen) > 1
    with pytest.raises(UserError, match=f"leave {next(iter(stated))} out"):
        lbfgs = {"kind": "frozen", "solver": "lbfgs"}
        finetune(pretrained(), CLASSES, train=classes(), adaptation=lbfgs, **stated)


def test_a_head_that_is_not_linear_is_trained_in_steps(pretrained) -> None:
    settings = {"head": {"kind": "dense", "read": "mean"}, "compile": False}
    assert not fitted(pretrained("bert"), CLASSES, classes(), **settings).training.fits
    with pytest.raises(UserError, match="fits linear heads"):
        lbfgs = {"kind": "frozen", "solver": "lbfgs"}
        finetune(pretrained(), CLASSES, train=classes(), adaptation=lbfgs, **settings)
    steps = {"kind": "frozen", "solver": "adamw"}
    found = finetune(pretrained(), CLASSES, train=classes(), adaptation=steps, compile=False)
    assert not found.training.fits


@pytest.mark.parametrize(
    ("system", "examples", "read"),
    [
        ("bert", classes(), "mean"),
        ("bert", pairs(), "apart"),
        ("modern", classes(), "mean"),
        ("gpt-2", classes(), "last"),
    ],
)
def test_frozen_features_are_the_last_layers_of_each_text(
    pretrained, system: str, examples: Any, read: str
) -> None:
    choice = fitted(pretrained(system), CLASSES, examples).model.net.choice
    assert (type(choice), choice.read, choice.layers) == (linear_heads.Plain, read, "last-4")


def test_a_class_of_one_example_and_examples_too_few_to_choose_are_no_mistake(pretrained) -> None:
    rare = [*classes(), Example("The river", label="other")]
    assert set(fitted(pretrained("bert"), CLASSES, rare).model.task.labels) == {
        "new", "old", "other"
    }  # fmt: skip
    few = classes()[:3]
    assert fitted(pretrained("bert"), CLASSES, few).scores == [1.0]


def test_questions_on_long_texts_are_fitted_in_windows(pretrained) -> None:
    task = find_task("squad2")
    long = fitted(pretrained("bert"), task, questions(), length=12)
    assert len(long.training.parts[0].items) > len(questions())
    assert long.training.fits


def test_a_learning_curve_of_frozen_features_has_one_head(pretrained) -> None:
    curve = learning_curve(
        pretrained("bert"),
        TaskData(CLASSES, train=classes(), dev=classes()),
        [8, None],
        settings={"adaptation": "frozen"},
    )
    assert [len(of) for of in curve.scores.values()] == [2, 2]
