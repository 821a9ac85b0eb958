"""Training on several languages: what a step reads, what is measured, what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_recipe import CHANGES

from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.bits_per_byte import hidden_words
from bertwright.training.clock import Clock, Place
from bertwright.training.distributed import Processes
from bertwright.training.evaluation import evaluate, held_out
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.retrieval import retrieval
from bertwright.training.row_sources import split_of

SPOKEN = ["assembly.length=32", "phases=[{}]", "text.tokenizer.size=120"]


def spoken(name: str, *changes: str) -> Recipe:
    changed = [change for change in CHANGES if not change.startswith("phases")]
    kind = "text.tokenizer.kind=wordpiece"
    return Recipe.load(name, *changed, *SPOKEN, kind, *changes)


def places(number: int) -> list[Place]:
    return [Clock(number).place(step, 8 * step) for step in range(number)]


def test_a_step_of_xlm_is_of_one_language_or_one_pair(spoken_data: Data) -> None:
    recipe = spoken("xlm")
    batches = RecipeBatches(recipe, spoken_data)
    languages = recipe.encoder.embeddings.languages
    found: set[tuple[str, ...]] = set()
    for place in places(60):
        (batch,) = batches(place).micro_batches
        coordinates = batch.coordinates
        assert coordinates.language is not None
        there = np.unique(coordinates.language[coordinates.document >= 0])
        found.add(tuple(sorted(languages[number] for number in there)))
    assert found == {("en",), ("de",), ("de", "en")}


def test_rows_of_xlm_r_are_drawn_one_by_one(spoken_data: Data) -> None:
    batches = RecipeBatches(spoken("xlm-r"), spoken_data)
    number = [
        len(np.unique(batches(place).micro_batches[0].coordinates.language)) for place in places(20)
    ]
    assert max(number) == 2


@pytest.mark.parametrize("name", ["xlm", "xlm-r"])
def test_neither_micro_batches_nor_processes_change_a_step(name: str, spoken_data: Data) -> None:
    one = RecipeBatches(spoken(name), spoken_data)
    many = RecipeBatches(spoken(name, "micro_batch_tokens=64"), spoken_data)
    two = [RecipeBatches(spoken(name), spoken_data, Processes(rank, 2)) for rank in range(2)]
    for place in places(12):
        (whole,) = one(place).micro_batches
        for cut in ([many(place)], [rank(place) for rank in two]):
            parts = [batch for step in cut for batch in step.micro_batches]
            for read in (lambda b: b.pieces, lambda b: b.coordinates.language):
                np.testing.assert_array_equal(
                    np.concatenate([read(part) for part in parts]), read(whole)
                )


def test_losses_are_named_by_language_and_sum_to_the_whole(
    spoken_data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # all that is held out is read
    recipe = spoken("xlm")
    model = Model.build(recipe, spoken_data.tokenizer.size)
    figures = evaluate(model, spoken_data)
    assert 0.0 <= figures["retrieval_en_de"] <= 1.0
    by_language = {name for name in figures if name.startswith("masked_loss_")}
    assert by_language == {"masked_loss_en", "masked_loss_de", "masked_loss_en_de"}
    held = held_out(recipe, 0, spoken_data, 65_536)
    weight = dict.fromkeys(held.labels, 0.0)
    for label, batch in zip(held.labels, held.batches, strict=True):
        weight[label] += float(batch.questions["masked"].weight.sum())
    nats = sum(
        count * figures[f"masked_loss_{label.replace('-', '_')}"] for label, count in weight.items()
    )
    assert nats / sum(weight.values()) == pytest.approx(figures["masked_loss"], rel=1e-5)


def test_hidden_words_are_asked_in_their_language(spoken_data: Data) -> None:
    recipe = spoken("xlm")
    split = split_of(recipe, spoken_data, "heldout")
    specials = spoken_data.tokenizer.specials
    seen = {
        int(number)
        for hidden in hidden_words(split, specials, specials.start, 32, 10**6)
        for number in np.unique(hidden.rows.coordinates.language)
    }
    known = recipe.encoder.embeddings.languages
    assert {known[number] for number in seen} == {"en", "de"}


def test_a_language_is_told_by_its_name_not_by_its_number(spoken_data: Data) -> None:
    orders = ("[en,de]", "[de,en]")
    forth, back = (spoken("xlm", f"encoder.embeddings.languages={order}") for order in orders)
    model, turned = (Model.build(recipe, spoken_data.tokenizer.size) for recipe in (forth, back))
    turned.load_state_dict(model.state_dict())
    assert turned.encoder.embeddings.languages is not None
    with torch.no_grad():
        rows = turned.encoder.embeddings.languages.weight
        rows.copy_(rows.flip(0).clone())
    assert evaluate(model, spoken_data) == evaluate(turned, spoken_data)


def test_a_model_that_reads_sides_alike_finds_every_translation(spoken_data: Data) -> None:
    recipe = spoken("xlm", "encoder.embeddings.languages=[en,de]")
    model = Model.build(recipe, spoken_data.tokenizer.size)
    with torch.no_grad():
        # The sides differ in nothing but capitals, which the tokenizer does not read.
        model.encoder.embeddings.languages.weight.zero_()
    split = split_of(recipe, spoken_data, "heldout")
    assert retrieval(model, split, spoken_data.tokenizer.specials) == {"retrieval_en_de": 1.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["encoder.embeddings.languages=[en,fr]"], r"'de'.*languages=\[en, de\]"),
        (["assembly.alpha=null", "encoder.embeddings.languages=[fr]"], "hold text in 'en'"),
    ],
)
def test_languages_that_the_encoder_does_not_know(
    changes: list[str], message: str, spoken_data: Data, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        pretrain(spoken("xlm", *changes), spoken_data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("languages", ["[]", "[en,de]"])
def test_data_that_say_no_languages(languages: str, data: Data, tmp_path: Path) -> None:
    recipe = spoken("xlm", f"encoder.embeddings.languages={languages}")
    with pytest.raises(UserError, match="prepare them with en=FILE"):
        pretrain(recipe, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()
