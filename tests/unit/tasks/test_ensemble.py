"""Ensembles: the mean of the predictions of several models, whatever else they differ in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.ensemble import Ensemble
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import (
    ClassificationOutput,
    MultiLabelOutput,
    OutputType,
    RegressionOutput,
)
from bertwright.tasks.task import Task
from small_tasks import classes, numbers, questions, several_labels, tagged

TASKS: dict[str, Any] = {
    "class": (table_task("t", Columns()), classes()),
    "labels": (table_task("t", Columns(), "labels"), several_labels()),
    "number": (table_task("t", Columns(), "number"), numbers()),
    "tags": (tagging_task("t"), tagged()),
}


def tuned(pretrained, system: str, kind: str, seed: int = 0, **settings: Any) -> FineTunedModel:
    task, examples = TASKS[kind]
    result = finetune(
        pretrained(system), task, train=examples, dev=examples, epochs=1, seed=seed,
        learning_rate=1e-2, compile=False, precision="float32", **settings,
    )  # fmt: skip
    return result.model


@pytest.mark.parametrize("kind", TASKS)
def test_the_mean_of_the_predictions(pretrained, kind: str) -> None:
    # Different architectures, tokenizers and temperatures.
    models = [tuned(pretrained, system, kind) for system in ("bert", "gpt-2")]
    examples = TASKS[kind][1][:6]
    ensemble = Ensemble(models)
    predictions = [model.predict(examples) for model in models]
    for mean, *parts in zip(ensemble.predict(examples), *predictions, strict=True):
        if kind == "number":
            assert mean.value == pytest.approx(np.mean([p.value for p in parts]), rel=1e-5)
        elif kind == "tags":
            assert len(mean.value) == len(parts[0].value)
            for tag, probability, *pairs in zip(
                mean.value, mean.probabilities,
                *(zip(p.value, p.probabilities, strict=True) for p in parts), strict=True,
            ):  # fmt: skip
                if {name for name, _ in pairs} == {tag}:
                    assert probability == pytest.approx(np.mean([q for _, q in pairs]), rel=1e-5)
        else:
            expected = {n: np.mean([p.probabilities[n] for p in parts]) for n in mean.probabilities}
            assert mean.probabilities == pytest.approx(expected, rel=1e-4)
            best = max(expected, key=lambda name: expected[name])
            assert mean.value == (
                best if kind == "class" else tuple(n for n, q in expected.items() if q > 0.5)
            )
    assert evaluate(ensemble, TASKS[kind][1])["task"] == "t"


def test_one_model_is_an_ensemble_of_itself(pretrained) -> None:
    model = tuned(pretrained, "bert", "class")
    for ensemble in (Ensemble([model]), Ensemble([model, model])):
        for mean, alone in zip(ensemble.predict(classes()), model.predict(classes()), strict=True):
            assert mean.value == alone.value
            assert mean.probabilities == pytest.approx(alone.probabilities, rel=1e-5)


@pytest.mark.parametrize("kind", ["class", "labels"])
def test_models_may_differ_in_the_weights_of_their_losses(pretrained, kind: str) -> None:
    task, examples = TASKS[kind]
    weighted = Task("t", task.output_type.model_copy(update={"weights": "balanced"}))
    models = [
        finetune(pretrained("bert"), t, train=examples, dev=examples, epochs=1, seed=seed).model
        for seed, t in enumerate((task, weighted))
    ]
    for members in (models, models[::-1]):
        for mean, *parts in zip(
            Ensemble(members).predict(examples),
            *(model.predict(examples) for model in members),
            strict=True,
        ):
            expected = {n: np.mean([p.probabilities[n] for p in parts]) for n in mean.probabilities}
            assert mean.probabilities == pytest.approx(expected, rel=1e-4)


def test_models_that_do_not_fit_are_refused(pretrained, tmp_path: Path) -> None:
    model = tuned(pretrained, "bert", "class")
    with pytest.raises(UserError, match="at least one model"):
        Ensemble([])
    with pytest.raises(UserError, match="have one output type"):
        Ensemble([model, tuned(pretrained, "bert", "number")])
    with pytest.raises(UserError, match="have the same labels"):
        Ensemble([model, _with_other_labels(pretrained)])
    spans = finetune(
        pretrained(), "squad1", train=questions()[:8], dev=questions()[:8], epochs=0
    ).model
    with pytest.raises(UserError, match="output type span has no mean prediction"):
        Ensemble([spans, spans]).predict(questions()[:2])


def _with_other_labels(pretrained) -> FineTunedModel:
    examples = [e.__class__(e.text, label=str(e.label).upper()) for e in classes()]
    return finetune(pretrained(), TASKS["class"][0], train=examples, dev=examples, epochs=0).model


LONG = {"stride": 3, "window_pooling": "max"}
OUTPUTS: dict[str, tuple[OutputType, Any]] = {
    "class": (ClassificationOutput(**LONG), classes()),
    "labels": (MultiLabelOutput(threshold=0.3, **LONG), several_labels()),
    "number": (RegressionOutput(**LONG), numbers()),
    "class, mean": (ClassificationOutput(stride=3), classes()),
    "labels, mean": (MultiLabelOutput(threshold=0.6), several_labels()),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_model_twice_predicts_what_it_predicts_alone(pretrained, name: str) -> None:
    output_type, examples = OUTPUTS[name]
    task, temperature = Task("t", output_type), 1.0 if name == "number" else 4.0
    trained = finetune(
        pretrained("bert"), task, train=examples, dev=examples, epochs=8, learning_rate=1e-2,
        compile=False, precision="float32", max_length=8,
    ).model  # fmt: skip
    model = FineTunedModel(
        trained.task_model, trained.tokenizer, trained.task, 8, "float32", temperature
    )
    alone, twice = model.predict(examples), Ensemble([model, model]).predict(examples)
    if name != "number":
        assert [p.value for p in twice] == [p.value for p in alone]
        for one, two in zip(alone, twice, strict=True):
            assert two.probabilities == pytest.approx(one.probabilities, rel=1e-4)
    else:
        assert [p.value for p in twice] == pytest.approx([p.value for p in alone], rel=1e-5)
    assert len({str(p.value) for p in alone}) > 1


def test_windows_are_averaged_before_a_temperature_decides(pretrained, monkeypatch) -> None:
    # One certain window outweighs two others, unless a low temperature makes all of them certain.
    windows = [[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 10.0]]]
    task = Task("t", ClassificationOutput(stride=5))
    trained = finetune(
        pretrained("bert"), task, train=classes(), dev=classes(), epochs=0, max_length=8
    ).model
    model = FineTunedModel(trained.task_model, trained.tokenizer, trained.task, 8, None, 0.25)

    def head_outputs(sequences: list[Any]) -> list[Any]:
        assert len(sequences) == 3
        return [np.array(window, np.float32) for window in windows]

    monkeypatch.setattr(model, "head_outputs", head_outputs)
    text = " ".join(["red"] * 14)
    (alone,) = model.predict([text])
    for ensemble in (Ensemble([model]), Ensemble([model, model])):
        (mean,) = ensemble.predict([text])
        assert mean.probabilities == pytest.approx(alone.probabilities, rel=1e-5)
        assert mean.value == alone.value == "old"
    assert mean.probabilities["old"] < 0.5
