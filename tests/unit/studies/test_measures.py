"""Measures of trained arms."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.data.shards.halves import with_heldout_half
from bertwright.data.tokenization.tokenizer import WordLevelConfig, WordPieceConfig
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.corpora import CorpusFolder, LongRangeCorpus
from bertwright.studies.corpora.multilingual import MultilingualCorpus, OtherLanguage
from bertwright.studies.measures import (
    ContinuationMeasure,
    ContinuationTokenMeasure,
    FineTuningMeasure,
    HeldOutMeasure,
    LinearProbeMeasure,
    Measure,
    MinimalPairMeasure,
    TrainedArm,
    continuation_accuracies,
    fills_correctly,
    tasks,
)
from bertwright.studies.run import prepare_corpus
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.training.pretraining.pretrain import pretrain

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
def causal(folder: Path) -> TrainedArm:
    """A causal model of words, hardly trained."""
    prepared = prepare_corpus(
        LongRangeCorpus(documents=100, distances=(16,)), WordLevelConfig(vocab_size=64), folder
    )
    words = {"text": {"tokenizer": {"kind": "words"}}}
    pretrain(Recipe.load("gpt-tiny", SMALL, words), prepared.data, folder / "gpt", quiet=True)
    return TrainedArm(folder / "gpt", Dataset.open(prepared.data), prepared.corpus, 0)


@pytest.fixture(scope="module")
def masked(causal: TrainedArm, folder: Path) -> TrainedArm:
    """A masked model of the same words, hardly trained."""
    words = {"text": {"tokenizer": {"kind": "words"}}}
    pretrain(Recipe.load("roberta-tiny", SMALL, words), causal.data, folder / "masked")
    return TrainedArm(folder / "masked", causal.data, causal.corpus, 0)


@pytest.fixture(scope="module")
def bilingual(folder: Path) -> TrainedArm:
    """A masked model of two languages, hardly trained."""
    corpus = MultilingualCorpus(stories=100, others={"de": OtherLanguage(stories=100)})
    prepared = prepare_corpus(corpus, WordPieceConfig(vocab_size=400), folder)
    recipe = Recipe.load("xlm-r-tiny", SMALL, {"text": {"tokenizer": {"kind": "wordpiece"}}})
    pretrain(recipe, prepared.data, folder / "xlm", quiet=True)
    return TrainedArm(folder / "xlm", Dataset.open(prepared.data), prepared.corpus, 0)


def test_continuation_is_correct_if_generated(causal: TrainedArm) -> None:
    model: TextModel = causal.text_model()
    lines = causal.corpus.prompts.read_text().splitlines()[:8]
    prompts = [json.loads(line)["prompt"] for line in lines]
    generated = model.generate(prompts, max_new_tokens=2, temperature=0)
    words = [continuation.text.split() for continuation in generated]

    def accuracies(texts: list[list[str]]) -> list[float]:
        return continuation_accuracies(
            model,
            [
                {"prompt": prompt, "continuation": " ".join(text)}
                for prompt, text in zip(prompts, texts, strict=True)
            ],
        )

    assert accuracies(words) == [1.0] * 8
    other = next(word for word in words[0] if word != words[1][0])
    changed = [[first, other] for first, _ in words]
    assert accuracies(changed) == [1.0 if second == other else 0.5 for _, second in words]


def test_gap_is_filled_correctly_if_most_likely(masked: TrainedArm) -> None:
    model = masked.text_model()
    prompt = json.loads(masked.corpus.prompts.read_text().splitlines()[0])
    [[best]] = model.fill_mask(prompt["gap"], top_k=1)
    for word in (best.token, prompt["continuation"]):
        assert fills_correctly(model, prompt["gap"], word) == (word == best.token)


@pytest.mark.parametrize("arm", ["causal", "masked"])
def test_accuracy_by_kind_of_prompt(arm: str, request: pytest.FixtureRequest) -> None:
    metrics = ContinuationMeasure().compute(request.getfixturevalue(arm))
    assert set(metrics) == {"distance-16"}
    assert 0.0 <= metrics["distance-16"] <= 1.0


def test_single_tokens_are_whole_continuations(causal: TrainedArm) -> None:
    assert ContinuationTokenMeasure().compute(causal) == ContinuationMeasure().compute(causal)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (ContinuationMeasure(), "the corpus has no prompts"),
        (MinimalPairMeasure(), "no minimal pairs: name a file"),
        (MinimalPairMeasure(file="none.jsonl"), "there is no file none.jsonl"),
        (FineTuningMeasure(task="topc"), "no task 'topc': did you mean 'topic'"),
        (FineTuningMeasure(task="topic", transfer_tasks=("topic-fr",)), "no task 'topic-fr'"),
        (FineTuningMeasure(task="sst-2", data="none"), "there is no none"),
        (FineTuningMeasure(task="sst-2", data=".", train="none.tsv"), "there is no none.tsv"),
        (
            FineTuningMeasure(task="sst", data="none"),
            "there is no task 'sst': did you mean 'sst-2'",
        ),
        (LinearProbeMeasure(task="nams"), "no task 'nams'"),
        (HeldOutMeasure(), None),
    ],
)
def test_missing_input_is_described(measure: Measure, message: str | None, tmp_path: Path) -> None:
    (tmp_path / "tasks" / "topic").mkdir(parents=True)
    missing = measure.missing_input(CorpusFolder(tmp_path))
    assert missing is None if message is None else message in str(missing)


def test_invalid_measures_raise(causal: TrainedArm) -> None:
    recipe = Recipe.load("bert-tiny")
    with pytest.raises(UserError, match=r"objectives\.maskd"):
        HeldOutMeasure(changes={"objectives": {"maskd": {}}}).check(recipe, causal.data)
    with pytest.raises(UserError, match="no layers '9'"):
        LinearProbeMeasure(task="names", layers="9").check(recipe, causal.data)
    with pytest.raises(UserError, match="no key 'epoch'"):
        FineTuningMeasure(task="names", settings={"epoch": 3})
    with pytest.raises(ValidationError, match="the arm sets seed"):
        FineTuningMeasure(task="names", settings={"seed": 3})


def test_halves_of_the_held_out_text_are_measured_apart(masked: TrainedArm) -> None:
    whole, first, second = (
        HeldOutMeasure(half=half).compute(masked) for half in (None, "first", "second")
    )
    assert whole.keys() == first.keys() == second.keys()
    assert len({metrics["bits_per_byte"] for metrics in (whole, first, second)}) == 3
    half = with_heldout_half(masked.data, "second")
    assert HeldOutMeasure().compute(replace(masked, data=half)) == second


def test_transfer_tasks_are_evaluated(bilingual: TrainedArm) -> None:
    metrics = FineTuningMeasure(
        task="topic", examples=64, transfer_tasks=("topic-de",), settings={"epochs": 1}
    ).compute(bilingual)
    assert {"accuracy", "macro-f1", "topic-de-accuracy", "topic-de-macro-f1"} <= set(metrics)


def test_repeats_are_the_mean_over_seeds_and_examples(
    bilingual: TrainedArm, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[int, list[Any], float]] = []

    def finetune_and_note(model: Any, task: Any, **options: Any) -> Any:
        result = finetune(model, task, **options)
        accuracy = result.seed_reports[0].scores[task.name]["accuracy"]
        runs.append((options["seed"], options["train"], accuracy))
        return result

    monkeypatch.setattr(tasks, "finetune", finetune_and_note)
    measure = FineTuningMeasure(task="topic", examples=40, repeats=3, settings={"epochs": 1})
    metrics = measure.compute(replace(bilingual, seed=2))
    seeds, examples, accuracies = zip(*runs, strict=True)
    assert seeds == (6, 7, 8)
    assert [len(part) for part in examples] == [40, 40, 40]
    assert len({text for part in examples for text in map(repr, part)}) > 80
    assert metrics["accuracy"] == pytest.approx(sum(accuracies) / 3)


def test_repeats_need_examples_of_their_own(bilingual: TrainedArm) -> None:
    measure = FineTuningMeasure(task="topic", examples=200, repeats=2)
    assert measure.missing_input(bilingual.corpus) is None
    measure = FineTuningMeasure(task="topic", examples=201, repeats=2)
    assert "has 400 examples, not 402" in str(measure.missing_input(bilingual.corpus))


def test_linear_probe_improves_with_examples_and_layers(bilingual: TrainedArm) -> None:
    few = LinearProbeMeasure(task="names", layers="0", examples=20).compute(bilingual)
    many = LinearProbeMeasure(task="names", layers="0", examples=1000).compute(bilingual)
    assert 0.3 < few["accuracy"] < many["accuracy"]
    all_layers = LinearProbeMeasure(task="names", layers="0-2", examples=1000).compute(bilingual)
    assert all_layers["accuracy"] > few["accuracy"]
    repeated = LinearProbeMeasure(task="names", layers="0", examples=20, repeats=5)
    assert 0.3 < repeated.compute(bilingual)["accuracy"] < many["accuracy"]
    too_many = LinearProbeMeasure(task="names", examples=20, repeats=1000)
    assert "examples, not 20000" in str(too_many.missing_input(bilingual.corpus))
