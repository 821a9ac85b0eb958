"""Objectives that compare the sequences of a step with each other."""

import pytest

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.training.clock import Progress
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.process_group import ProcessGroup
from small_recipe import small


def test_a_step_is_one_micro_batch_of_one_process(data: Dataset) -> None:
    recipe = small("simcse", "assembly.length=32", "phases=[{}]", "micro_batch_tokens=32")
    batches = PretrainingBatches(recipe, data)
    step = batches(Progress(0, 0.0))
    assert step.num_sequences > 1
    assert [len(batch.token_ids) for batch in step.micro_batches] == [step.num_sequences]
    with pytest.raises(UserError, match="train in one process"):
        PretrainingBatches(recipe, data, ProcessGroup(rank=0, world_size=2))
