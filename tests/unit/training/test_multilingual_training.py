"""Multilingual training: batches, metrics and errors."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.recipes import Recipe
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.evaluation.held_out import evaluate, make_held_out_evaluation
from bertwright.training.evaluation.masked_words import iter_masked_words
from bertwright.training.evaluation.retrieval import retrieval_accuracy
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.process_group import ProcessGroup
from bertwright.training.sequence_sources import open_split
from small_recipe import CHANGES

MULTILINGUAL = ["assembly.length=32", "phases=[{}]", "text.tokenizer.vocab_size=120"]


def multilingual(name: str, *changes: str) -> Recipe:
    shared = [change for change in CHANGES if not change.startswith("phases")]
    kind = "text.tokenizer.kind=wordpiece"
    return Recipe.load(name, *shared, *MULTILINGUAL, kind, *changes)


def progress_of_steps(number: int) -> list[Progress]:
    return [TrainingClock(number).progress(step, 8 * step) for step in range(number)]


def test_a_step_of_xlm_has_one_language_or_one_pair(spoken_data: Dataset) -> None:
    recipe = multilingual("xlm")
    batches = PretrainingBatches(recipe, spoken_data)
    languages = recipe.encoder.embeddings.languages
    combinations: set[tuple[str, ...]] = set()
    for progress in progress_of_steps(60):
        (batch,) = batches(progress).micro_batches
        token_info = batch.token_info
        assert token_info.language_ids is not None
        language_ids = np.unique(token_info.language_ids[token_info.document_ids >= 0])
        combinations.add(tuple(sorted(languages[index] for index in language_ids)))
    assert combinations == {("en",), ("de",), ("de", "en")}


def test_sequences_of_xlm_r_are_sampled_independently(spoken_data: Dataset) -> None:
    batches = PretrainingBatches(multilingual("xlm-r"), spoken_data)
    number = [
        len(np.unique(batches(progress).micro_batches[0].token_info.language_ids))
        for progress in progress_of_steps(20)
    ]
    assert max(number) == 2


@pytest.mark.parametrize("name", ["xlm", "xlm-r"])
def test_neither_micro_batches_nor_processes_change_a_step(name: str, spoken_data: Dataset) -> None:
    one = PretrainingBatches(multilingual(name), spoken_data)
    many = PretrainingBatches(multilingual(name, "micro_batch_tokens=64"), spoken_data)
    two = [
        PretrainingBatches(multilingual(name), spoken_data, ProcessGroup(rank, 2))
        for rank in range(2)
    ]
    for progress in progress_of_steps(12):
        (whole,) = one(progress).micro_batches
        for steps in ([many(progress)], [rank(progress) for rank in two]):
            parts = [batch for step in steps for batch in step.micro_batches]
            for get in (lambda b: b.token_ids, lambda b: b.token_info.language_ids):
                np.testing.assert_array_equal(
                    np.concatenate([get(part) for part in parts]), get(whole)
                )


def test_losses_are_named_by_language_and_sum_to_the_whole(
    spoken_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # evaluate all held-out text
    recipe = multilingual("xlm")
    model = Model.build(recipe, spoken_data.tokenizer.vocab_size)
    metrics = evaluate(model, spoken_data)
    assert 0.0 <= metrics["retrieval_en_de"] <= 1.0
    by_language = {name for name in metrics if name.startswith("masked_loss_")}
    assert by_language == {"masked_loss_en", "masked_loss_de", "masked_loss_en_de"}
    evaluation = make_held_out_evaluation(recipe, 0, spoken_data, 65_536)
    weight = dict.fromkeys(evaluation.batch_labels, 0.0)
    for label, batch in zip(evaluation.batch_labels, evaluation.batches, strict=True):
        weight[label] += float(batch.targets["masked"].weights.sum())
    nats = sum(
        count * metrics[f"masked_loss_{label.replace('-', '_')}"] for label, count in weight.items()
    )
    assert nats / sum(weight.values()) == pytest.approx(metrics["masked_loss"], rel=1e-5)


def test_masked_words_have_their_language(spoken_data: Dataset) -> None:
    recipe = multilingual("xlm")
    split = open_split(recipe, spoken_data, "heldout")
    specials = spoken_data.tokenizer.special_tokens
    language_ids = {
        int(index)
        for masked in iter_masked_words(split, specials, specials.start, 32, 10**6)
        for index in np.unique(masked.sequences.token_info.language_ids)
    }
    languages = recipe.encoder.embeddings.languages
    assert {languages[index] for index in language_ids} == {"en", "de"}


def test_languages_are_identified_by_name_not_by_index(spoken_data: Dataset) -> None:
    orders = ("[en,de]", "[de,en]")
    original, swapped = (
        multilingual("xlm", f"encoder.embeddings.languages={order}") for order in orders
    )
    model, swapped_model = (
        Model.build(recipe, spoken_data.tokenizer.vocab_size) for recipe in (original, swapped)
    )
    swapped_model.load_state_dict(model.state_dict())
    assert swapped_model.encoder.embeddings.languages is not None
    with torch.no_grad():
        weight = swapped_model.encoder.embeddings.languages.weight
        weight.copy_(weight.flip(0).clone())
    assert evaluate(model, spoken_data) == evaluate(swapped_model, spoken_data)


def test_a_model_that_ignores_languages_retrieves_every_translation(spoken_data: Dataset) -> None:
    recipe = multilingual("xlm", "encoder.embeddings.languages=[en,de]")
    model = Model.build(recipe, spoken_data.tokenizer.vocab_size)
    with torch.no_grad():
        # Translations differ only in capitals, which the tokenizer ignores.
        model.encoder.embeddings.languages.weight.zero_()
    split = open_split(recipe, spoken_data, "heldout")
    assert retrieval_accuracy(model, split, spoken_data.tokenizer.special_tokens) == {
        "retrieval_en_de": 1.0
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["encoder.embeddings.languages=[en,fr]"], r"'de'.*languages=\[en, de\]"),
        (["assembly.alpha=null", "encoder.embeddings.languages=[fr]"], "holds text in 'en'"),
    ],
)
def test_languages_unknown_to_the_encoder_are_rejected(
    changes: list[str], message: str, spoken_data: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        pretrain(multilingual("xlm", *changes), spoken_data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("languages", ["[]", "[en,de]"])
def test_data_without_languages_are_rejected(languages: str, data: Dataset, tmp_path: Path) -> None:
    recipe = multilingual("xlm", f"encoder.embeddings.languages={languages}")
    with pytest.raises(UserError, match="prepare it with en=FILE"):
        pretrain(recipe, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()
