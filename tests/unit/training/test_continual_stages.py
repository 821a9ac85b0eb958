"""Continual multi-task pre-training: task schedule and task embeddings."""

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models import Model
from bertwright.models.model import DeviceBatch
from bertwright.objectives.classification import PooledClassifier
from bertwright.recipes import Recipe
from bertwright.training.callbacks.callback import metric_name
from bertwright.training.clock import TrainingClock
from bertwright.training.evaluation.held_out import evaluate
from bertwright.training.pretraining_batches import PretrainingBatches
from toy_recipes import VOCABULARY, toy

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


def test_all_tasks_have_equal_steps_and_different_ids(rich_data: Dataset) -> None:
    recipe = small("batch_tokens=24")
    batches, clock = PretrainingBatches(recipe, rich_data), TrainingClock(600, STAGES, 0.0)
    tasks: list[str] = []
    for step in range(600):
        [batch] = batches(clock.progress(step, step)).micro_batches
        [name] = batch.targets
        assert (batch.token_info.task_ids == TASKS[name]).all()
        tasks.append(name)
    counts = [tasks.count(name) for name in TASKS]
    assert all(count == pytest.approx(100, abs=30) for count in counts)
    assert set(tasks[:28]) == {"masked"}
    assert tasks[-200:].count("masked") > 5


def test_the_embedding_of_the_task_is_added(rich_data: Dataset) -> None:
    recipe = small()
    model = Model.build(recipe, rich_data.tokenizer.vocab_size).eval()
    batches, clock = PretrainingBatches(recipe, rich_data), TrainingClock(600, STAGES, 0.0)
    progress = clock.progress(599, 599)
    batch = DeviceBatch(batches(progress).micro_batches[0])
    [name] = batch.targets
    with model.record("embeddings.tasks", "embeddings.sum") as values:
        model(batch.token_ids, batch.token_info)
    tasks = model.encoder.embeddings.tasks
    assert tasks is not None
    assert torch.equal(values["embeddings.tasks"][0, 0], tasks.weight[TASKS[name]])


def test_the_first_task_is_the_default(rich_data: Dataset) -> None:
    model = Model.build(small(), rich_data.tokenizer.vocab_size).eval()
    with model.record("embeddings.tasks") as values:
        model(torch.arange(8)[None])
    tasks = model.encoder.embeddings.tasks
    assert tasks is not None
    assert torch.equal(values["embeddings.tasks"], tasks.weight[:1])


def test_all_tasks_are_evaluated(rich_data: Dataset) -> None:
    model = Model.build(small(), rich_data.tokenizer.vocab_size).eval()
    metrics = evaluate(model, rich_data)
    assert all(f"{metric_name(name)}_loss" in metrics for name in TASKS)


def test_capitals_are_taken_from_the_text(rich_data: Dataset) -> None:
    batches = PretrainingBatches(small("phases=[{objectives: {capitalised: {}}}]"), rich_data)
    clock = TrainingClock(600, [1.0], 0.0)
    batch = batches(clock.progress(3, 3)).micro_batches[0]
    targets = batch.targets["capitalised"]
    is_target = targets.weights > 0
    word_ids = batch.token_info.word_ids
    assert word_ids is not None
    assert batch.token_info.sentence_ids is not None
    assert is_target.sum() == sum(len(set(words[words >= 0].tolist())) for words in word_ids)
    # One language has a capital at the start of each sentence only, the other one everywhere.
    assert 0.02 < targets.labels[is_target].mean() < 0.9
    assert targets.labels[~is_target].sum() <= targets.labels.sum()


def test_missing_annotations_are_reported(data: Dataset) -> None:
    batches = PretrainingBatches(small("phases=[{objectives: {capitalised: {}}}]"), data)
    with pytest.raises(UserError, match="--capitals"):
        batches(TrainingClock(600, [1.0], 0.0).progress(0, 0))


def test_occurrences_are_only_computed_for_objectives_that_need_them(rich_data: Dataset) -> None:
    batches = PretrainingBatches(small(), rich_data)
    phase = TrainingClock(600, STAGES, 0.0).progress(599, 599).phase
    index, epoch = np.arange(8), np.zeros(8, np.int64)
    for group in small().objective_schedule(phase):
        sequences = batches.unmasked_sequences(phase, group.objectives, index, epoch)
        has_occurrences = sequences.token_info.occurs_elsewhere is not None
        assert has_occurrences == ("token-document" in group.objectives)


def test_an_objective_may_have_a_different_input_format(rich_data: Dataset) -> None:
    recipe = small("objectives.discourse-relation.connectives=[but, then]")
    batches = PretrainingBatches(recipe, rich_data)
    progress = TrainingClock(600, STAGES, 0.0).progress(599, 599)
    index, epoch = np.arange(8), np.zeros(8, np.int64)
    for group in recipe.objective_schedule(progress.phase):
        batch = batches.make_batch(progress, group.objectives, index, epoch)
        assert batch.token_ids.shape == (8, recipe.assembly.length)
        assert batch.num_tokens > 0
        has_connectives = "discourse-relation" in group.objectives
        assert (batch.token_info.connective_ids is not None) == has_connectives
        if has_connectives:
            assert batch.targets["discourse-relation"].labels.tolist() == [0] * 8
            assert batches.epoch_size(5, group.objectives) < 60


def test_missing_sequences_of_a_later_stage_are_reported_before_training(
    rich_data: Dataset,
) -> None:
    recipe = small("objectives.discourse-relation.connectives=[whereupon, nay]")
    with pytest.raises(UserError, match="begins with a connective, such as 'whereupon'"):
        PretrainingBatches(recipe, rich_data).check_data()


def test_a_task_needs_an_embedding() -> None:
    with pytest.raises(UserError, match=r"task is 9, but the encoder has 6"):
        small("objectives.reordering.task=9")
    with pytest.raises(UserError, match="reordering must be the first"):
        small("phases=[{objectives: {masked: {fraction: null}, reordering: {fraction: null}}}]")


def test_tasks_on_sequences_share_a_pooler() -> None:
    model = Model.build(toy("ernie-2"), VOCABULARY)
    poolers = [head.pooler for head in model.heads.values() if isinstance(head, PooledClassifier)]
    assert len(poolers) == 3
    assert all(pooler is model.pooler for pooler in poolers)
    separate = Model.build(toy("ernie-2", "pooler=false"), VOCABULARY)
    width = model.recipe.encoder.width
    num_shared, num_separate = (sum(p.numel() for p in m.parameters()) for m in (model, separate))
    assert num_separate - num_shared == 2 * (width**2 + width)
