"""What is measured of a trained arm beside losses."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.corpora import Long, Written
from bertwright.studies.corpora.duo import Duo, Other
from bertwright.studies.measures import (
    Answers,
    Features,
    HeldOut,
    Measure,
    MinimalPairs,
    Probe,
    Trained,
    answered,
    filled,
)
from bertwright.studies.running import prepared_for
from bertwright.text.shards import Data
from bertwright.text.tokenizers import WordPieceChoice, WordsChoice
from bertwright.training.pretraining import pretrain

SMALL = {
    "assembly": {"length": 64},
    "encoder": {"width": 32, "mixer": {"head_width": 16}},
    "phases": [{}],
    "batch_tokens": 256,
    "precision": "float32",
    "compile": False,
    "steps": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measures")


@pytest.fixture(scope="module")
def recalling(folder: Path) -> Trained:
    """A causal model of words that has hardly been trained."""
    prepared = prepared_for(Long(documents=100, distances=(16,)), WordsChoice(size=64), folder)
    words = {"text": {"tokenizer": {"kind": "words"}}}
    pretrain(Recipe.load("gpt-tiny", SMALL, words), prepared.data, folder / "gpt", quiet=True)
    return Trained(folder / "gpt", Data.open(prepared.data), prepared.corpus, 0)


@pytest.fixture(scope="module")
def filling(recalling: Trained, folder: Path) -> Trained:
    """A masked model of the same words that has hardly been trained."""
    words = {"text": {"tokenizer": {"kind": "words"}}}
    pretrain(Recipe.load("roberta-tiny", SMALL, words), recalling.data, folder / "filled")
    return Trained(folder / "filled", recalling.data, recalling.corpus, 0)


@pytest.fixture(scope="module")
def bilingual(folder: Path) -> Trained:
    """A masked model of two languages that has hardly been trained."""
    corpus = Duo(stories=100, others={"de": Other(stories=100)})
    prepared = prepared_for(corpus, WordPieceChoice(size=400), folder)
    recipe = Recipe.load("xlm-r-tiny", SMALL, {"text": {"tokenizer": {"kind": "wordpiece"}}})
    pretrain(recipe, prepared.data, folder / "xlm", quiet=True)
    return Trained(folder / "xlm", Data.open(prepared.data), prepared.corpus, 0)


def test_an_answer_is_right_where_the_model_goes_on_so(recalling: Trained) -> None:
    model: TextModel = recalling.text_model()
    lines = recalling.corpus.questions.read_text().splitlines()[:8]
    prompts = [json.loads(line)["prompt"] for line in lines]
    found = model.generate(prompts, max_new_tokens=2, temperature=0)
    right = [(prompt, go.text.strip()) for prompt, go in zip(prompts, found, strict=True)]
    assert answered(model, right) == [True] * 8
    wrong = [(prompt, " ".join(reversed(text.split()))) for prompt, text in right]
    assert answered(model, wrong) == [
        text == told for (_, text), (_, told) in zip(right, wrong, strict=True)
    ]


def test_a_gap_is_filled_where_its_pieces_are_the_likeliest(filling: Trained) -> None:
    model = filling.text_model()
    question = json.loads(filling.corpus.questions.read_text().splitlines()[0])
    [[guess]] = model.fill_mask(question["gap"], top_k=1)
    for answer in (guess.piece, question["answer"]):
        assert filled(model, question["gap"], answer) == (answer == guess.piece)


@pytest.mark.parametrize("arm", ["recalling", "filling"])
def test_answers_are_counted_by_kind(arm: str, request: pytest.FixtureRequest) -> None:
    figures = Answers().of(request.getfixturevalue(arm))
    assert set(figures) == {"distance-16"}
    assert 0.0 <= figures["distance-16"] <= 1.0


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (Answers(), "the corpus asks no questions"),
        (MinimalPairs(), "no minimal pairs: name a file"),
        (MinimalPairs(file="none.jsonl"), "there is no file none.jsonl"),
        (Probe(task="topc"), "no task 'topc': did you mean 'topic'"),
        (Probe(task="topic", transferred=("topic-fr",)), "no task 'topic-fr'"),
        (Probe(task="sst-2", data="none"), "there is no folder none"),
        (Probe(task="sst", data="none"), "there is no task 'sst': did you mean 'sst-2'"),
        (Features(task="nams"), "no task 'nams'"),
        (HeldOut(), None),
    ],
)
def test_what_is_missing_is_known_before_anything_is_trained(
    measure: Measure, message: str | None, tmp_path: Path
) -> None:
    (tmp_path / "tasks" / "topic").mkdir(parents=True)
    found = measure.missing(Written(tmp_path))
    assert found is None if message is None else message in str(found)


def test_what_cannot_be_measured_is_known_before_anything_is_trained(recalling: Trained) -> None:
    recipe = Recipe.load("bert-tiny")
    with pytest.raises(UserError, match=r"objectives\.maskd"):
        HeldOut(changes={"objectives": {"maskd": {}}}).check(recipe, recalling.data)
    with pytest.raises(UserError, match="no layers '9'"):
        Features(task="names", layers="9").check(recipe, recalling.data)
    with pytest.raises(UserError, match="no key 'epoch'"):
        Probe(task="names", settings={"epoch": 3})
    with pytest.raises(ValidationError, match="seed is that of the arm"):
        Probe(task="names", settings={"seed": 3})


def test_a_task_is_asked_in_the_language_in_which_it_was_not_learned(bilingual: Trained) -> None:
    figures = Probe(
        task="topic", examples=64, transferred=("topic-de",), settings={"epochs": 1}
    ).of(bilingual)
    assert {"accuracy", "macro-f1", "topic-de-accuracy", "topic-de-macro-f1"} <= set(figures)


def test_frozen_vectors_of_words_tag_the_words_that_they_have_seen(bilingual: Trained) -> None:
    few = Features(task="names", layers="0", examples=20).of(bilingual)
    many = Features(task="names", layers="0", examples=1000).of(bilingual)
    assert 0.3 < few["accuracy"] < many["accuracy"]
    everything = Features(task="names", layers="0-2", examples=1000).of(bilingual)
    assert everything["accuracy"] > few["accuracy"]
