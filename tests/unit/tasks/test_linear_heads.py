"""Linear heads on frozen features: the minimum of their loss for every task, scale and seed.

Step settings disable the solver.
"""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import find_task, table_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads import linear_solver
from bertwright.tasks.outputs import OutputType, SpanOutput
from bertwright.tasks.task import Task
from bertwright.tasks.tuning.learning_curve import compute_learning_curve
from full_suite import full_except
from small_tasks import (
    classes,
    numbers,
    options,
    pairs,
    questions,
    several_labels,
    tagged,
)

CLASSES, NUMBERS = table_task("task", Columns()), table_task("task", Columns(), "number")
ALL: dict[str, tuple[Any, Any]] = {
    "class": ("class", classes()),
    "pairs": ("class", pairs()),
    "labels": ("labels", several_labels()),
    "number": ("number", numbers()),
    "tags": ("tags", tagged()),
    "option": ("option", options()),
    "span": (SpanOutput(unanswerable=True), questions()),
}
every_kind = pytest.mark.parametrize("kind", full_except(ALL, ["pairs", "number", "tags"]))


def fitted(model: Any, task: Task, examples: Any, **settings: Any) -> FineTuningResult:
    return finetune(
        model, task, train=examples, dev=examples, adaptation="frozen", calibrate=False, **settings
    )


def features_of(model: Any, task: Task, examples: Any) -> np.ndarray:
    """Return the standardised features of the head."""
    collected: list[Any] = []
    original = linear_solver.fit_linear_head

    def spy(head: Any, encoded_task: Any, features: Any, seed: int) -> Any:
        collected.append(head.standardiser(head.mix(torch.cat(list(features)))).numpy())
        return original(head, encoded_task, features, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.tasks.finetuning.run.fit_linear_head", spy)
        fitted(model, task, examples)
    return collected[0]


@pytest.mark.parametrize("strength", [0.1, 10.0])
@pytest.mark.parametrize("basis", [True, False])
def test_classes_match_logistic_regression_with_the_same_penalty(
    pretrained, monkeypatch: pytest.MonkeyPatch, strength: float, basis: bool
) -> None:
    monkeypatch.setattr(linear_solver, "INVERSE_L2_GRID", (strength,))
    monkeypatch.setattr(linear_solver, "MAX_BASIS", 2000 if basis else 0)
    model = pretrained("bert", "encoder.width=128")
    features = features_of(model, CLASSES, classes())
    result = fitted(model, CLASSES, classes())
    l2 = result.run.linear_fits[0]["task"].l2
    assert l2 == pytest.approx(features.shape[1] / strength)
    # For two classes scikit-learn has one weight vector, the difference of ours.
    peer = LogisticRegression(C=2 / l2, max_iter=5000, tol=1e-8)
    chances = peer.fit(features, [e.label for e in classes()]).predict_proba(features)
    for prediction, theirs in zip(result.best.predictions[0], chances, strict=True):
        assert list(prediction.probabilities.values()) == pytest.approx(theirs, abs=2e-3)


def test_numbers_match_ridge_regression_with_the_same_penalty(
    pretrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_solver, "INVERSE_L2_GRID", (3.0,))
    model = pretrained("bert")
    features = features_of(model, NUMBERS, numbers())
    result = fitted(model, NUMBERS, numbers())
    # The penalty is halved, the squared error is not.
    peer = Ridge(alpha=result.run.linear_fits[0]["task"].l2 / 2)
    theirs = peer.fit(features, [e.label for e in numbers()]).predict(features)
    assert [p.value for p in result.best.predictions[0]] == pytest.approx(theirs, abs=0.05)


@every_kind
def test_every_task_with_a_linear_head_is_fitted_and_saved(
    pretrained, kind: str, tmp_path: Any
) -> None:
    answer, examples = ALL[kind]
    task = Task("task", OutputType.parse(answer))
    result = fitted(pretrained("bert"), task, examples, output=tmp_path / "task")
    untrained = fitted(pretrained("bert"), task, examples, epochs=0)
    assert result.scores[0] > untrained.scores[0]
    assert len(result.run.epoch_reports) == 1
    assert set(result.as_dict()["l2"]) == {"task"}
    again = load_fine_tuned_model(tmp_path / "task")
    assert again.predict(examples) == result.model.predict(examples)
    for prediction, collected in zip(
        again.predict(examples), result.best.predictions[0], strict=True
    ):
        if kind != "number":
            assert prediction.value == collected.value


def test_seeds_differ_by_no_more_than_the_penalty(pretrained, monkeypatch) -> None:
    monkeypatch.setattr(linear_solver, "INVERSE_L2_GRID", (1.0,))
    result = fitted(pretrained("bert"), CLASSES, classes(), seeds=3)
    assert len(set(result.scores)) == 1
    assert len(set(result.as_dict()["l2"]["task"])) == 1


def test_features_are_computed_once_for_all_seeds(pretrained, monkeypatch) -> None:
    calls: list[int] = []
    from bertwright.tasks.finetuning.frozen_features import FrozenFeatures

    original = FrozenFeatures._read_features

    def spy(self: Any, part: int, rows: Any) -> Any:
        calls.append(part)
        return original(self, part, rows)

    monkeypatch.setattr(FrozenFeatures, "_read_features", spy)
    fitted(pretrained("bert"), CLASSES, classes(), seeds=3)
    assert len(calls) == 2  # training and held-out examples


@pytest.mark.parametrize(
    "stated",
    [{"epochs": 2}, {"learning_rate": 1e-2}, {"patience": 1}, {"batch_size": 8}, {"warmup": 0.0}],
)
def test_step_settings_disable_the_solver(pretrained, stated: dict[str, Any]) -> None:
    result = fitted(pretrained("bert"), CLASSES, classes(), compile=False, **stated)
    assert not result.run.linear_fits
    assert len(result.run.epoch_reports) > 1
    with pytest.raises(UserError, match=f"so {next(iter(stated))} has no effect"):
        lbfgs = {"kind": "frozen", "solver": "lbfgs"}
        finetune(pretrained(), CLASSES, train=classes(), adaptation=lbfgs, **stated)


def test_a_head_that_is_not_linear_is_trained_in_steps(pretrained) -> None:
    settings = {"head": {"kind": "dense", "pooling": "mean"}, "compile": False}
    assert not fitted(pretrained("bert"), CLASSES, classes(), **settings).run.linear_fits
    with pytest.raises(UserError, match="fits linear heads"):
        lbfgs = {"kind": "frozen", "solver": "lbfgs"}
        finetune(pretrained(), CLASSES, train=classes(), adaptation=lbfgs, **settings)
    steps = {"kind": "frozen", "solver": "adamw"}
    result = finetune(pretrained(), CLASSES, train=classes(), adaptation=steps, compile=False)
    assert not result.run.linear_fits


@pytest.mark.parametrize(
    ("system", "examples", "read"),
    [
        ("bert", classes(), "mean"),
        ("bert", pairs(), "siamese"),
        ("modern", classes(), "mean"),
        ("gpt-2", classes(), "last"),
    ],
)
def test_frozen_features_are_the_last_layers_of_each_text(
    pretrained, system: str, examples: Any, read: str
) -> None:
    head_config = fitted(pretrained(system), CLASSES, examples).model.task_model.head_config
    assert (type(head_config), head_config.pooling, head_config.layers) == (
        linear_solver.LinearHeadConfig,
        read,
        "last-4",
    )


def test_rare_classes_and_few_examples_are_supported(pretrained) -> None:
    rare = [*classes(), Example("The river", label="other")]
    assert set(fitted(pretrained("bert"), CLASSES, rare).model.task.labels) == {
        "new", "old", "other"
    }  # fmt: skip
    few = classes()[:3]
    assert fitted(pretrained("bert"), CLASSES, few).scores == [1.0]


@pytest.mark.full
def test_questions_on_long_texts_are_fitted_in_windows(pretrained) -> None:
    task = find_task("squad2")
    long = fitted(pretrained("bert"), task, questions(), max_length=12)
    assert len(long.run.encoded_tasks[0].items) > len(questions())
    assert long.run.linear_fits


def test_a_learning_curve_of_frozen_features_has_one_head(pretrained) -> None:
    curve = compute_learning_curve(
        pretrained("bert"),
        TaskData(CLASSES, train=classes(), dev=classes()),
        [8, None],
        settings={"adaptation": "frozen"},
    )
    assert [len(of) for of in curve.scores.values()] == [2, 2]
