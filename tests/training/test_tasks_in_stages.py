"""Tasks that are added stage by stage: whose turn it is, and which vector is added meanwhile."""

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
from recipes_at_toy_size import toy

TASKS = {"masked": 0, "capitalised": 1, "reordering": 2, "sentence-distance": 3}


def small(*changes: str) -> Recipe:
    return toy("ernie-2", "text.tokenizer.kind=wordpiece", "steps=400", *changes)


def test_every_task_has_as_many_steps_and_its_own_vector(rich_data: Data) -> None:
    recipe = small("batch_tokens=24")
    batches, clock = RecipeBatches(recipe, rich_data), Clock(400, [0.1, 0.2, 0.3, 0.4], 0.0)
    asked: list[str] = []
    for step in range(400):
        [batch] = batches(clock.place(step, step)).micro_batches
        [name] = batch.questions
        assert (batch.coordinates.task == TASKS[name]).all()
        asked.append(name)
    number = {name: asked.count(name) for name in TASKS}
    assert all(count == pytest.approx(100, abs=25) for count in number.values())
    assert set(asked[:40]) == {"masked"}
    assert asked[-160:].count("masked") > 5


def test_the_vector_of_a_task_is_added(rich_data: Data) -> None:
    recipe = small()
    model = Model.build(recipe, rich_data.tokenizer.size).eval()
    batches, clock = RecipeBatches(recipe, rich_data), Clock(400, [0.1, 0.2, 0.3, 0.4], 0.0)
    place = clock.place(399, 399)
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
    names = ("masked", "capitalised", "reordering", "sentence_distance")
    assert all(f"{name}_loss" in figures for name in names)


def test_capitals_are_those_of_the_text(rich_data: Data) -> None:
    batches = RecipeBatches(small("phases=[{objectives: {capitalised: {}}}]"), rich_data)
    clock = Clock(400, [1.0], 0.0)
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
        batches(Clock(400, [1.0], 0.0).place(0, 0))


def test_a_task_needs_a_vector() -> None:
    with pytest.raises(UserError, match=r"task is 4, and the encoder knows 4"):
        small("objectives.reordering.task=4")
    with pytest.raises(UserError, match="reordering must be the first"):
        small("phases=[{objectives: {masked: {share: null}, reordering: {share: null}}}]")
