"""Targets of small batches."""

import numpy as np
import pytest

from bertwright.batches.formats import Packed, SegmentPair
from bertwright.batches.masking import TokenSelection
from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.batches.targets import mask_tokens, next_token_targets, relation_targets
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
