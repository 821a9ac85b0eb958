"""Targets at given positions, for scoring the words of a text."""

import numpy as np
import pytest

from bertwright.batches.masking.selection import SelectedPositions
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.objectives.objective import Objective
from numbered_text import MASK, SPECIALS

VOCABULARY = Vocabulary(40, SPECIALS)
BATCH = SequenceBatch(
    np.array([[2, 10, 11, 12, 3, 0], [2, 20, 21, 22, 23, 3]], np.int32),
    TokenInfoArrays(),
    np.array([[1, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, 1]], np.bool_),
)
IS_MASKED = np.array([[0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]], np.bool_)
SELECTED = SelectedPositions.from_unit_ids(np.where(IS_MASKED, 0, -1), 3)
LABELS = [10, 12, 23]


def objective(**settings: object) -> Objective:
    return Objective.parse(settings)


def targets_of(**settings: object):
    result = objective(**settings).make_targets_at(SELECTED, IS_MASKED, BATCH, VOCABULARY)
    assert result is not None
    batch, targets = result
    is_real = targets.weights > 0
    assert targets.labels[is_real].tolist() == LABELS
    return batch, targets, targets.positions[is_real].tolist()


def test_masked_tokens_are_predicted_in_place() -> None:
    batch, _, positions = targets_of(kind="masked")
    assert positions == [1, 3, 6 + 4]
    assert np.array_equal(batch.token_ids, np.where(IS_MASKED, MASK, BATCH.token_ids))


def test_nothing_is_predicted_from_the_sequence_before() -> None:
    is_masked = np.zeros_like(IS_MASKED)
    is_masked[:, [0, 2]] = True
    selected = SelectedPositions.from_unit_ids(np.where(is_masked, 0, -1), 2)
    masked = objective(kind="masked", shift=1)
    result = masked.make_targets_at(selected, is_masked, BATCH, VOCABULARY)
    assert result is not None
    _, targets = result
    assert targets.positions.tolist() == [0, 2, 6, 8]
    assert targets.weights.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("direction", ["forward", "both"])
def test_causal_models_predict_from_the_token_before(direction: str) -> None:
    batch, targets, positions = targets_of(kind="causal", direction=direction)
    assert positions == [0, 2, 6 + 3]
    assert np.array_equal(batch.token_ids, BATCH.token_ids)
    assert (targets.positions >= np.repeat([0, 6], 3)).all()
    assert ("is_next" in targets.extra_inputs) == (direction == "both")
    assert np.all(targets.extra_inputs.get("is_next", 1) == 1)


def test_a_backward_model_predicts_nothing_from_the_left() -> None:
    backward = objective(kind="causal", direction="backward")
    assert backward.make_targets_at(SELECTED, IS_MASKED, BATCH, VOCABULARY) is None


def test_permuted_models_see_no_masked_token() -> None:
    batch, _, _ = targets_of(kind="permutation")
    order = batch.token_info.factorisation_order
    content, queries = order[:, :6], order[:, 6:]
    assert np.array_equal(content, IS_MASKED)
    assert np.array_equal(queries > 0, SELECTED.weights > 0)
