"""Targets of discourse relations (Sun et al. 2019b, section 4.2.3)."""

import numpy as np

from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.core.rng import CounterRng
from bertwright.objectives.discourse_relation import DiscourseRelation
from bertwright.objectives.objective import MaskingContext
from bertwright.testing.toy import toy_vocabulary


def test_the_removed_connective_is_the_class() -> None:
    connective_ids = np.full((3, 5), -1, np.int32)
    connective_ids[0, 2], connective_ids[1, 3] = 0, 7
    batch = SequenceBatch(
        np.full((3, 5), 9, np.int32),
        TokenInfoArrays(connective_ids=connective_ids),
        np.zeros((3, 5), bool),
    )
    objective = DiscourseRelation()
    context = MaskingContext(CounterRng(0, 0, np.arange(3)), toy_vocabulary())
    same, targets = objective.make_targets(batch, context)
    assert same is batch
    assert targets.positions.tolist() == [0, 5, 10]
    assert targets.weights.tolist() == [1, 1, 0]
    assert targets.labels[:2].tolist() == [0, 7]
    assert objective.class_label(7, str) == objective.connectives[7]
    assert objective.num_classes(40) == len(objective.connectives)
