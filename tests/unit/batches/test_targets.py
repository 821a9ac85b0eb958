"""Targets of small batches."""

from dataclasses import replace

import numpy as np
import pytest

from bertwright.batches.formats import Packed, SegmentPair
from bertwright.batches.masking import TokenSelection
from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.batches.targets import (
    Targets,
    all_position_targets,
    all_transition_targets,
    bidirectional_targets,
    mask_tokens,
    next_token_targets,
    previous_token_targets,
    relation_targets,
    span_boundary_targets,
)
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from numbered_text import CLS, MASK, SEP, SPECIALS, all_sequences, plan_text

ALWAYS_MASK = TokenReplacement(mask=1, random=0, keep=0)
TOKEN_IDS = np.array([[CLS, 10, 11, SEP], [CLS, 12, SEP, 0]], np.int32)
BATCH = SequenceBatch(
    TOKEN_IDS,
    TokenInfoArrays(document_ids=np.array([[0, 0, 0, 0], [0, 0, 0, -1]], np.int32)),
    TOKEN_IDS < 10,
    np.array([1, 0]),
)


def mask(batch, epoch=0, index=0, corruption=ALWAYS_MASK, rate=0.5):
    rng = CounterRng(3, epoch, index)
    masked, targets = mask_tokens(
        batch, TokenSelection(masking_rate=rate), corruption, Vocabulary(50, SPECIALS), rng, 0.0
    )
    return masked.token_ids, targets


def test_masked_tokens_are_targets():
    token_ids, targets = mask(BATCH)
    assert token_ids.tolist() == [[CLS, MASK, MASK, SEP], [CLS, MASK, SEP, 0]]
    assert targets.positions.tolist() == [1, 2, 5, 5]
    assert targets.labels.tolist() == [10, 11, 12, 12]
    assert targets.weights.tolist() == [1, 1, 1, 0]
    assert (targets.positions.dtype, targets.labels.dtype) == (np.int64, np.int64)
    assert (token_ids.dtype, targets.weights.dtype) == (np.int32, np.float32)


def test_masking_depends_on_sequence_and_epoch_alone():
    source, _ = plan_text(Packed(length=32), [[[1] * 400]])
    index, epoch = np.array([4, 1, 6]), np.array([0, 2, 2])
    together, targets = mask(source.sequences(index, epoch), epoch, index, TokenReplacement())
    for i in range(3):
        batch = source.sequences(index[i : i + 1], epoch[i : i + 1])
        separate, separate_targets = mask(batch, int(epoch[i]), int(index[i]), TokenReplacement())
        np.testing.assert_array_equal(separate[0], together[i])
        np.testing.assert_array_equal(
            separate_targets.positions + 32 * i, targets.positions.reshape(3, -1)[i]
        )
        again, _ = mask(batch, int(epoch[i]) + 1, int(index[i]), TokenReplacement())
        assert (again != separate).any()


def test_static_masks_repeat():
    source, _ = plan_text(SegmentPair(length=32), [[[1] * 90, [1] * 30]] * 3)
    batch, static = all_sequences(source), TokenReplacement(when="static", copies=4)
    first, _ = mask(batch, 1, np.arange(source.num_sequences), static)
    again, _ = mask(batch, 5, np.arange(source.num_sequences), static)
    other, _ = mask(batch, 2, np.arange(source.num_sequences), static)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_next_token_within_a_document():
    targets = next_token_targets(BATCH)
    assert targets.positions.tolist() == [0, 1, 2, 4, 5, 6]
    assert targets.labels.tolist() == [10, 11, SEP, 12, SEP, 0]
    assert targets.weights.tolist() == [1, 1, 1, 1, 1, 0]


def test_previous_tokens_are_next_tokens_read_backwards():
    following, previous, both = (
        make(BATCH) for make in (next_token_targets, previous_token_targets, bidirectional_targets)
    )
    assert previous.positions.tolist() == [1, 2, 3, 5, 6, 7]
    assert previous.labels.tolist() == [CLS, 10, 11, CLS, 12, SEP]
    assert previous.weights.tolist() == [1, 1, 1, 1, 1, 0]
    for name in ("positions", "labels", "weights"):
        values = [*getattr(following, name), *getattr(previous, name)]
        assert getattr(both, name).tolist() == values
    assert both.extra_inputs["is_next"].tolist() == [1] * 6 + [0] * 6


def test_targets_without_labels_are_at_real_positions():
    everywhere, transitions = all_position_targets(BATCH), all_transition_targets(BATCH)
    assert everywhere.positions.tolist() == list(range(8))
    assert everywhere.weights.tolist() == [1] * 7 + [0]
    assert transitions.positions.tolist() == [0, 1, 2, 4, 5, 6]
    assert transitions.weights.tolist() == [1, 1, 1, 1, 1, 0]
    assert not everywhere.labels.any()
    assert not transitions.labels.any()


@pytest.mark.parametrize(("max_offset", "scored", "offsets"), [(2, [1, 1], 1), (1, [1, 0], 0)])
def test_spans_between_unmasked_tokens_are_predicted_from_both_sides(max_offset, scored, offsets):
    token_ids = np.array([[CLS, 10, 11, 12, 13, 14, 15, SEP]] * 2, np.int32)
    batch = SequenceBatch(token_ids, TokenInfoArrays(), token_ids < 10)
    # The first token of a text and its last one are next to special tokens.
    masked = Targets(
        np.array([2, 3, 6, 9, 11, 12]), np.array([11, 12, 15, 10, 12, 13]), np.ones(6, np.float32)
    )
    targets = span_boundary_targets(batch, masked, max_offset)
    assert targets.weights.tolist() == [*scored, 0, 0, *scored]
    assert targets.extra_inputs["left_positions"].tolist() == [1, 1, 5, 8, 10, 10]
    assert targets.extra_inputs["right_positions"].tolist() == [4, 4, 7, 10, 13, 13]
    assert targets.extra_inputs["span_offsets"].tolist() == [0, offsets, 0, 0, 0, offsets]
    unweighted = replace(masked, weights=np.array([1, 1, 1, 1, 0, 1], np.float32))
    targets = span_boundary_targets(batch, unweighted, 2)
    assert targets.weights.tolist() == [1, 1, 0, 0, 0, 1]
    assert targets.extra_inputs["left_positions"][-1] == 11


def test_other_relations_have_no_weight():
    targets = relation_targets(replace(BATCH, relation=np.array([2, 0])), ("next", "random"))
    assert (targets.labels.tolist(), targets.weights.tolist()) == ([0, 0], [0, 1])


def test_next_token_stops_at_documents():
    batch = SequenceBatch(
        np.array([[CLS, 10, SEP, CLS, 11, SEP]], np.int32),
        TokenInfoArrays(document_ids=np.array([[0, 0, 0, 1, 1, 1]], np.int32)),
        np.array([[True, False, True, True, False, True]]),
    )
    targets = next_token_targets(batch)
    assert targets.labels[targets.weights > 0].tolist() == [10, SEP, 11, SEP]


def test_next_token_without_documents():
    targets = next_token_targets(
        SequenceBatch(TOKEN_IDS[:1], TokenInfoArrays(), BATCH.is_special[:1])
    )
    assert targets.labels.tolist() == [10, 11, SEP]
    assert targets.weights.tolist() == [1, 1, 1]


def test_relation_targets_at_first_positions():
    targets = relation_targets(BATCH, ("next", "random"))
    assert targets.positions.tolist() == [0, 4]
    assert targets.labels.tolist() == [1, 0]
    assert targets.weights.tolist() == [1, 1]


def test_relation_without_pairs_is_an_error():
    with pytest.raises(UserError, match="segment-pair"):
        relation_targets(SequenceBatch(TOKEN_IDS, TokenInfoArrays(), BATCH.is_special), ("next",))
