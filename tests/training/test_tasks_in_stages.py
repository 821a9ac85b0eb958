"""Tasks that are added stage by stage: whose turn it is, and which vector is added meanwhile."""

import numpy as np
import pytest
import torch

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.model import TensorBatch
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clock import Clock
from bertwright.training.evaluation import evaluate
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.reporting import figure_name
from recipes_at_toy_size import toy

TASKS = {
    "masked": 0,
    "capitalised": 1,
    "token-document": 2,
    "reordering": 3,
    "sentence-distance": 4,
    "discourse-relation": 5,
}
STAGES = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def small(*changes: str) -> Recipe:
    return toy("ernie-2", "text.tokenizer.kind=wordpiece", "steps=600", *changes)


def test_every_task_has_as_many_steps_and_its_own_vector(rich_data: Data) -> None:
    recipe = small("batch_tokens=24")
    batches, clock = RecipeBatches(recipe, rich_data), Clock(600, STAGES, 0.0)
    asked: list[str] = []
    for step in range(600):
        [batch] = batches(clock.place(step, step)).micro_batches
        [name] = batch.questions
        assert (batch.coordinates.task == TASKS[name]).all()
        asked.append(name)
    number = {name: asked.count(name) for name in TASKS}
    assert all(count == pytest.approx(100, abs=30) for count in number.values())
    assert set(asked[:28]) == {"masked"}
    assert asked[-200:].count("masked") > 5


def test_the_vector_of_a_task_is_added(rich_data: Data) -> None:
    recipe = small()
    model = Model.build(recipe, rich_data.tokenizer.size).eval()
    batches, clock = RecipeBatches(recipe, rich_data), Clock(600, STAGES, 0.0)
    place = clock.place(599, 599)
    batch = TensorBatch(batches(place).micro_batches[0])
    [name] = batch.questions
    with model.record("embeddings.tasks", "embeddings.sum") as values:
        model(batch.pieces, batch.coordinates)
    tasks = model.encoder.embeddings.tasks
    assert tasks is not None
    assert torch.equal(values["embeddings.tasks"][0, 0], tasks.weight[TASKS[name]])


def test_in_use_it_is_the_first_task(rich_data: Data) -> None:
    model = Model.build(small(), rich_data.tokenizer.size).eval()
    with model.record("embeddings.tasks") as values:
        model(torch.arange(8)[None])
    tasks = model.encoder.embeddings.tasks
    assert tasks is not None
    assert torch.equal(values["embeddings.tasks"], tasks.weight[:1])


def test_all_tasks_are_evaluated(rich_data: Data) -> None:
    model = Model.build(small(), rich_data.tokenizer.size).eval()
    figures = evaluate(model, rich_data)
    assert all(f"{figure_name(name)}_loss" in figures for name in TASKS)


def test_capitals_are_those_of_the_text(rich_data: Data) -> None:
    batches = RecipeBatches(small("phases=[{objectives: {capitalised: {}}}]"), rich_data)
    clock = Clock(600, [1.0], 0.0)
    batch = batches(clock.place(3, 3)).micro_batches[0]
    question = batch.questions["capitalised"]
    asked = question.weight > 0
    word = batch.coordinates.word
    sentence = batch.coordinates.sentence
    assert word is not None
    assert sentence is not None
    assert asked.sum() == sum(len(set(row[row >= 0].tolist())) for row in word)
    # Stories in one language have a capital at the start of each sentence and nowhere else, in the
    # other everywhere.
    assert 0.02 < question.target[asked].mean() < 0.9
    assert question.target[~asked].sum() <= question.target.sum()


def test_what_the_text_does_not_tell_is_said(data: Data) -> None:
    batches = RecipeBatches(small("phases=[{objectives: {capitalised: {}}}]"), data)
    with pytest.raises(UserError, match="--capitals"):
        batches(Clock(600, [1.0], 0.0).place(0, 0))


def test_what_stands_elsewhere_is_looked_up_only_where_it_is_asked(rich_data: Data) -> None:
    batches, place = RecipeBatches(small(), rich_data), Clock(600, STAGES, 0.0).place(599, 599)
    index, epoch = np.arange(8), np.zeros(8, np.int64)
    for turn in small().turns_of(place.phase):
        rows = batches.assembled(place.phase, turn.objectives, index, epoch)
        told = rows.coordinates.elsewhere is not None
        assert told == ("token-document" in turn.objectives)


def test_a_question_may_have_rows_of_its_own(rich_data: Data) -> None:
    recipe = small("objectives.discourse-relation.connectives=[but, then]")
    batches, place = RecipeBatches(recipe, rich_data), Clock(600, STAGES, 0.0).place(599, 599)
    index, epoch = np.arange(8), np.zeros(8, np.int64)
    for turn in recipe.turns_of(place.phase):
        batch = batches.asked(place, turn.objectives, index, epoch)
        assert batch.pieces.shape == (8, recipe.assembly.length)
        assert batch.num_tokens > 0
        own = "discourse-relation" in turn.objectives
        assert (batch.coordinates.connective is not None) == own
        if own:
            assert batch.questions["discourse-relation"].target.tolist() == [0] * 8
            assert batches.rows_in_epoch(5, turn.objectives) < 60


def test_rows_that_a_later_stage_lacks_are_missed_before_the_first(rich_data: Data) -> None:
    recipe = small("objectives.discourse-relation.connectives=[whereupon, nay]")
    with pytest.raises(UserError, match="begins with a connective, such as 'whereupon'"):
        RecipeBatches(recipe, rich_data).plan()


def test_a_task_needs_a_vector() -> None:
    with pytest.raises(UserError, match=r"task is 9, and the encoder knows 6"):
        small("objectives.reordering.task=9")
    with pytest.raises(UserError, match="reordering must be the first"):
        small("phases=[{objectives: {masked: {share: null}, reordering: {share: null}}}]")
