"""Baselines: exact answers on a few words; every task has some, and they stand beside every
score."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertwright.errors import UserError
from bertwright.tasks.answers import Answer, Prediction, SpanAnswer
from bertwright.tasks.baselines import fitting, majority_tag, tag_of_word
from bertwright.tasks.baselines.comparing import compare
from bertwright.tasks.baselines.words import WordsCosine, WordsLinear, WordsSpan
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.evaluation import evaluate_beside_baselines
from bertwright.tasks.fine_tuned import load_fine_tuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.folds import cross_validate
from bertwright.tasks.formats.examples import Example, Options, Question, TaggedWords
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
    similar,
    tagged,
)

TRAINING = [
    TaggedWords(("the", "run", "ended"), ("DET", "NOUN", "VERB")),
    TaggedWords(("they", "run", "the", "run"), ("PRON", "VERB", "DET", "NOUN")),
]
ASKED = [TaggedWords(("they", "run")), TaggedWords(("fast",))]


def test_the_majority_answers_the_same_everywhere() -> None:
    # DET, NOUN and VERB stand twice each: the first in the alphabet is taken.
    assert majority_tag(TRAINING, ASKED) == [("DET", "DET"), ("DET",)]


def test_each_word_answers_for_itself_and_the_majority_for_new_ones() -> None:
    assert tag_of_word(TRAINING, ASKED) == [("PRON", "NOUN"), ("DET",)]


def test_baselines_do_not_look_at_the_tags_they_are_asked_for() -> None:
    hidden = [TaggedWords(s.words, ("X",) * len(s.words)) for s in ASKED]
    assert tag_of_word(TRAINING, hidden) == tag_of_word(TRAINING, ASKED)


def learned(model: Any, answer: Any, examples: Any, **settings: Any) -> FineTuneResult:
    task = Task("own", Answer.choose(answer))
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
    "option": ("option", options(), ["most frequent place", "cosine of TF-IDF"]),
    "span": (
        SpanAnswer(unanswerable=True), questions(),
        ["no answer", "other words of the nearest sentence"],
    ),
    "closeness": ({"kind": "closeness", "highest": 5.0}, similar(), ["cosine of TF-IDF"]),
    "relevance": ("relevance", [Example(e.first, e.second, e.label) for e in similar()],
                  ["cosine of TF-IDF"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_every_task_has_baselines_in_its_folder_that_score_the_same(
    pretrained, kind: str, tmp_path: Path
) -> None:
    answer, examples, names = ALL[kind]
    result = learned(pretrained(), answer, examples, out=tmp_path / "own")
    found = result.as_dict()
    assert [line["baseline"] for line in found["baselines"]] == names
    assert found["examples"] == len(examples)
    assert set(found["intervals"]) == set(found["metrics"])
    for line in found["baselines"]:
        assert line["trained_on"] == len(examples)
        assert {f"{metric}_interval" for metric in found["metrics"]} < set(line)
    model = load_fine_tuned(tmp_path / "own")
    again = evaluate_beside_baselines(model, examples)
    assert again["baselines"] == found["baselines"]
    assert again["examples"] == len(examples)
    json.dumps(again)
    assert not list((tmp_path / "own").glob("*.pkl"))


@pytest.mark.parametrize("kind", ["class", "pairs", "labels", "number", "tags"])
def test_frozen_features_have_a_linear_baseline_too(pretrained, kind: str, tmp_path: Path) -> None:
    answer, examples, _ = ALL[kind]
    frozen = {"adaptation": "frozen", "epochs": 3, "out": tmp_path / "own"}
    result = learned(pretrained("bert"), answer, examples, **frozen)
    last = result.as_dict()["baselines"][-1]
    assert last["baseline"].endswith("regression on the same vectors")
    again = evaluate_beside_baselines(load_fine_tuned(tmp_path / "own"), examples)["baselines"][-1]
    metric = result.metric
    assert again[metric] == pytest.approx(last[metric], abs=0.05)
    assert last[metric] > 0.9
    assert not result.training.kept_states


def test_a_model_that_is_not_better_than_a_baseline_says_so_in_one_sentence(pretrained) -> None:
    result = learned(pretrained(), "class", classes())
    (sentence,) = [line for line in result.warnings if "baseline" in line]
    assert sentence.startswith("task own: the model (accuracy 0.")
    assert "not better than the baseline 'TF-IDF with logistic regression' (1)" in sentence
    unknowing = [Example(f"text {n}", label="ab"[n % 2]) for n in range(40)]
    tuned = finetune(
        pretrained(), table_task("own", Columns()), train=classes(), dev=classes(), epochs=8,
        rate=3e-3, dropout=0.0, batch=8, compile=False,
    )  # fmt: skip
    assert tuned.scores == [1.0]
    compared = compare(
        tuned.task,
        unknowing,
        [Prediction(e.label) for e in unknowing],
        {"other": [Prediction("a")] * 40},
        {"other": 1},
    )
    assert compared.verdict is None
    nearly = [Prediction(e.label if n else "b") for n, e in enumerate(unknowing)]
    right = [Prediction(e.label) for e in unknowing]
    close = compare(tuned.task, unknowing, right, {"other": nearly}, {"other": 1})
    assert "by less than 40 examples tell from chance" in (close.verdict or "")


def test_baselines_are_fitted_once_and_the_same_for_all_seeds(pretrained, monkeypatch) -> None:
    calls: list[int] = []
    original = fitting.fit_baselines

    def spy(*given: Any) -> Any:
        calls.append(1)
        return original(*given)

    monkeypatch.setattr(fitting, "fit_baselines", spy)
    result = learned(pretrained(), "class", classes(), seeds=3)
    first = result.as_dict()["baselines"]
    assert first == result.as_dict()["baselines"]
    assert first == learned(pretrained(), "class", classes(), seed=5).as_dict()["baselines"]
    assert len(calls) == 2


def test_of_many_examples_some_are_used_and_how_many_is_said(pretrained, monkeypatch) -> None:
    monkeypatch.setattr(fitting, "MAX_EXAMPLES", 10)
    found = learned(pretrained(), "class", classes()).as_dict()["baselines"]
    assert [line["trained_on"] for line in found] == [10, 10]


def test_a_model_without_a_folder_of_baselines_says_why(pretrained, tmp_path: Path) -> None:
    result = learned(pretrained(), "class", classes(), out=tmp_path / "own")
    (tmp_path / "own" / "baselines.json").unlink()
    for model in (load_fine_tuned(tmp_path / "own"), result.model):
        found = evaluate_beside_baselines(model, classes())
        assert found["baselines"] == []
        assert found["warnings"][0].startswith("there are no baselines beside this model")
    (tmp_path / "own" / "baselines.json").write_text("[{")
    with pytest.raises(UserError, match=r"baselines\.json is damaged"):
        evaluate_beside_baselines(load_fine_tuned(tmp_path / "own"), classes())


@pytest.mark.parametrize(
    "texts", [["", ""], ["...", "!!!"], ["\u4f60\u597d\u4e16\u754c" * 5, "\u5929\u6c14" * 9]]
)
def test_texts_without_words_or_spaces_are_no_mistake(texts: list[str]) -> None:
    examples = [Example(text, label="ab"[n]) for n, text in enumerate(texts)] * 6
    task = Task("own", Answer.choose("class")).gathered(examples)
    answers = WordsLinear.fit(task, examples).predict(examples)
    if texts[0][:1] == "\u4f60":
        assert [own.answer for own in answers] == [e.label for e in examples]


def test_the_cosine_ranks_and_the_nearest_sentence_answers() -> None:
    asked = Question("Where did Peter live?", "Anna sang. Peter lived in Oslo.", ("Oslo",), (26,))
    (said,) = WordsSpan.fit([asked]).predict([asked])
    assert said.answer == "lived"
    example = Options("a red bird", ("a green tree", "the red bird"), label=1)
    task = Task("own", Answer.choose("option"))
    assert WordsCosine.fit(task, [example]).predict([example])[0].answer == 1


def test_folds_and_curves_have_baselines(pretrained) -> None:
    data = TaskData(table_task("own", Columns()), train=classes(), dev=classes())
    curve = learning_curve(pretrained(), data, [8, None], settings={"epochs": 0}).as_dict()
    assert {row["baseline"] for row in curve["baselines"]} == set(ALL["class"][2])
    assert [row["examples"] for row in curve["baselines"]] == [8, 32, 8, 32]
    folded = TaskData(table_task("own", Columns()), train=classes())
    said: list[str] = []
    found = cross_validate(
        pretrained(), folded, 2, say=said.append, settings={"epochs": 0, "seeds": 2}
    ).as_dict()
    assert found["examples"] == len(classes())
    assert [line["baseline"] for line in found["baselines"]] == ALL["class"][2]
    assert any("not better than the baseline" in line for line in said)
