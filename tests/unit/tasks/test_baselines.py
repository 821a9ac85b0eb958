"""Baselines: exact predictions on a few words, saved and reported with every score."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertwright.core.errors import UserError
from bertwright.tasks.baselines import fit_baselines as fitting
from bertwright.tasks.baselines.comparison import compare_predictions
from bertwright.tasks.baselines.frequency import ConstantBaseline, WordTagBaseline
from bertwright.tasks.baselines.tf_idf import (
    SlidingWindowBaseline,
    TfIdfCosineBaseline,
    TfIdfLinearBaseline,
)
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.examples import (
    Example,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
)
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import OutputType, Prediction, SpanOutput
from bertwright.tasks.task import Task
from bertwright.tasks.tuning.cross_validation import cross_validate
from bertwright.tasks.tuning.learning_curve import compute_learning_curve
from small_tasks import (
    attached,
    classes,
    numbers,
    options,
    pairs,
    questions,
    several_labels,
    similar,
    tagged,
)

TRAINING = [
    TaggedSentence(("the", "run", "ended"), ("DET", "NOUN", "VERB")),
    TaggedSentence(("they", "run", "the", "run"), ("PRON", "VERB", "DET", "NOUN")),
]
INPUTS = [TaggedSentence(("they", "run")), TaggedSentence(("fast",))]


def test_majority_tag_is_constant() -> None:
    # DET, NOUN and VERB stand twice each: the first in the alphabet is taken.
    baseline = ConstantBaseline.fit(tagging_task("task"), TRAINING)
    assert baseline is not None
    assert [p.value for p in baseline.predict(INPUTS)] == [("DET", "DET"), ("DET",)]


def test_word_tag_baseline_uses_the_majority_for_new_words() -> None:
    predictions = WordTagBaseline.fit(TRAINING).predict(INPUTS)
    assert [p.value for p in predictions] == [("PRON", "NOUN"), ("DET",)]


def test_baselines_do_not_read_reference_tags() -> None:
    retagged = [TaggedSentence(s.words, ("X",) * len(s.words)) for s in INPUTS]
    baseline = WordTagBaseline.fit(TRAINING)
    assert baseline.predict(retagged) == baseline.predict(INPUTS)


def learned(model: Any, output_type: Any, examples: Any, **settings: Any) -> FineTuningResult:
    task = Task("task", OutputType.parse(output_type))
    return finetune(
        model, task, train=examples, dev=examples, **{"epochs": 0, "compile": False, **settings}
    )


ALL: dict[str, tuple[Any, Any, list[str]]] = {
    "class": ("class", classes(), ["majority class", "TF-IDF with logistic regression"]),
    "pairs": ("class", pairs(), ["majority class", "TF-IDF with logistic regression"]),
    "labels": (
        "labels", several_labels(), ["most frequent labels", "TF-IDF with logistic regression"]
    ),
    "number": ("number", numbers(), ["mean of the numbers", "TF-IDF with ridge regression"]),
    "tags": ("tags", tagged(), ["most frequent tag", "most frequent tag of each word"]),
    "head": ("head", attached(), ["word at the most frequent distance"]),
    "option": ("option", options(), ["most frequent position", "cosine of TF-IDF"]),
    "span": (
        SpanOutput(unanswerable=True), questions(),
        ["no answer", "other words of the nearest sentence"],
    ),
    "similarity": ({"kind": "similarity", "max_label": 5.0}, similar(), ["cosine of TF-IDF"]),
    "relevance": ("relevance", [Example(e.text, e.pair, e.label) for e in similar()],
                  ["cosine of TF-IDF"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_saved_baselines_score_the_same(pretrained, kind: str, tmp_path: Path) -> None:
    output_type, examples, names = ALL[kind]
    result = learned(pretrained(), output_type, examples, output=tmp_path / "task")
    report = result.as_dict()
    assert [line["baseline"] for line in report["baselines"]] == names
    assert report["examples"] == len(examples)
    assert set(report["intervals"]) == set(report["metrics"])
    for line in report["baselines"]:
        assert line["training_examples"] == len(examples)
        assert {f"{metric}_interval" for metric in report["metrics"]} < set(line)
    model = load_fine_tuned_model(tmp_path / "task")
    again = evaluate(model, examples, with_baselines=True)
    assert again["baselines"] == report["baselines"]
    assert again["examples"] == len(examples)
    json.dumps(again)
    assert not list((tmp_path / "task").glob("*.pkl"))


@pytest.mark.parametrize("kind", ["class", "pairs", "labels", "number", "tags"])
def test_frozen_features_have_a_linear_baseline_too(pretrained, kind: str, tmp_path: Path) -> None:
    output_type, examples, _ = ALL[kind]
    frozen = {"adaptation": "frozen", "epochs": 3, "output": tmp_path / "task"}
    result = learned(pretrained("bert"), output_type, examples, **frozen)
    last = result.as_dict()["baselines"][-1]
    assert last["baseline"].endswith("regression on the same vectors")
    again = evaluate(load_fine_tuned_model(tmp_path / "task"), examples, with_baselines=True)[
        "baselines"
    ][-1]
    metric = result.metric
    assert again[metric] == pytest.approx(last[metric], abs=0.05)
    assert last[metric] > 0.9
    assert not result.run.frozen_features


def test_sentences_without_words_have_no_features(pretrained) -> None:
    # They change nothing, wherever they stand.
    nothing, sentences = TaggedSentence((), ()), tagged()
    results = [
        finetune(
            pretrained("bert"), tagging_task("task"), train=train, dev=dev, adaptation="frozen"
        ).as_dict()["baselines"][-1]
        for train, dev in ((sentences, sentences), ([nothing, *sentences], [*sentences, nothing]))
    ]
    assert len({line["accuracy"] for line in results}) == 1
    empty = finetune(
        pretrained("bert"),
        tagging_task("task"),
        train=sentences,
        dev=[nothing],
        adaptation="frozen",
    )
    assert empty.scores == [0.0]
    assert len(empty.as_dict()["baselines"]) == 3


def test_model_not_better_than_a_baseline_is_warned_of(pretrained) -> None:
    result = learned(pretrained(), "class", classes())
    (sentence,) = [line for line in result.warnings if "baseline" in line]
    assert sentence.startswith("task task: the model (accuracy 0.")
    assert "not better than the baseline 'TF-IDF with logistic regression' (1)" in sentence
    unknowing = [Example(f"text {n}", label="ab"[n % 2]) for n in range(40)]
    tuned = finetune(
        pretrained(), table_task("task", Columns()), train=classes(), dev=classes(), epochs=8,
        learning_rate=3e-3, dropout=0.0, batch_size=8, compile=False,
    )  # fmt: skip
    assert tuned.scores == [1.0]
    compared = compare_predictions(
        tuned.task,
        unknowing,
        [Prediction(e.label) for e in unknowing],
        {"other": [Prediction("a")] * 40},
        {"other": 1},
    )
    assert compared.verdict is None
    nearly = [Prediction(e.label if n else "b") for n, e in enumerate(unknowing)]
    right = [Prediction(e.label) for e in unknowing]
    close = compare_predictions(tuned.task, unknowing, right, {"other": nearly}, {"other": 1})
    assert "not significantly on 40 examples" in (close.verdict or "")


def test_baselines_are_fitted_once_and_the_same_for_all_seeds(pretrained, monkeypatch) -> None:
    calls: list[int] = []
    original = fitting.fit_baselines

    def spy(*args: Any) -> Any:
        calls.append(1)
        return original(*args)

    monkeypatch.setattr(fitting, "fit_baselines", spy)
    result = learned(pretrained(), "class", classes(), seeds=3)
    first = result.as_dict()["baselines"]
    assert first == result.as_dict()["baselines"]
    assert first == learned(pretrained(), "class", classes(), seed=5).as_dict()["baselines"]
    assert len(calls) == 2


def test_baselines_are_fitted_to_a_subset_of_many_examples(pretrained, monkeypatch) -> None:
    monkeypatch.setattr(fitting, "MAX_EXAMPLES", 10)
    report = learned(pretrained(), "class", classes()).as_dict()["baselines"]
    assert [line["training_examples"] for line in report] == [10, 10]


def test_missing_baselines_are_warned_of(pretrained, tmp_path: Path) -> None:
    result = learned(pretrained(), "class", classes(), output=tmp_path / "task")
    (tmp_path / "task" / "baselines.json").unlink()
    for model in (load_fine_tuned_model(tmp_path / "task"), result.model):
        report = evaluate(model, classes(), with_baselines=True)
        assert report["baselines"] == []
        assert report["warnings"][0].startswith("this model has no baselines")
    (tmp_path / "task" / "baselines.json").write_text("[{")
    with pytest.raises(UserError, match=r"baselines\.json is damaged"):
        evaluate(load_fine_tuned_model(tmp_path / "task"), classes(), with_baselines=True)


@pytest.mark.parametrize(
    "texts", [["", ""], ["...", "!!!"], ["\u4f60\u597d\u4e16\u754c" * 5, "\u5929\u6c14" * 9]]
)
def test_texts_without_words_or_spaces_are_supported(texts: list[str]) -> None:
    examples = [Example(text, label="ab"[n]) for n, text in enumerate(texts)] * 6
    task = Task("task", OutputType.parse("class")).with_labels_from(examples)
    answers = TfIdfLinearBaseline.fit("class", task, examples).predict(examples)
    if texts[0][:1] == "\u4f60":
        assert [prediction.value for prediction in answers] == [e.label for e in examples]


def test_tf_idf_cosine_and_sliding_window_baselines() -> None:
    question = ExtractiveQuestion(
        "Where did Peter live?", "Anna sang. Peter lived in Oslo.", ("Oslo",), (26,)
    )
    (prediction,) = SlidingWindowBaseline.fit([question]).predict([question])
    assert prediction.value == "lived"
    example = MultipleChoice("a red bird", ("a green tree", "the red bird"), label=1)
    task = Task("task", OutputType.parse("option"))
    assert TfIdfCosineBaseline.fit(task, [example]).predict([example])[0].value == 1


def test_folds_and_curves_have_baselines(pretrained) -> None:
    data = TaskData(table_task("task", Columns()), train=classes(), dev=classes())
    curve = compute_learning_curve(pretrained(), data, [8, None], settings={"epochs": 0}).as_dict()
    assert {row["baseline"] for row in curve["baselines"]} == set(ALL["class"][2])
    assert [row["examples"] for row in curve["baselines"]] == [8, 32, 8, 32]
    folded = TaskData(table_task("task", Columns()), train=classes())
    messages: list[str] = []
    report = cross_validate(
        pretrained(), folded, 2, log=messages.append, settings={"epochs": 0, "seeds": 2}
    ).as_dict()
    assert report["examples"] == len(classes())
    assert [line["baseline"] for line in report["baselines"]] == ALL["class"][2]
    assert any("not better than the baseline" in line for line in messages)
