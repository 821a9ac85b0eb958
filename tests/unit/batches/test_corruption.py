"""Corruption of selected tokens."""

import numpy as np
import pytest
from pydantic import ValidationError

from bertwright.batches.masking import SelectedPositions
from bertwright.batches.masking.corruption import Corruption, TokenReplacement
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from numbered_text import MASK, SPECIALS

VOCABULARY = 50
NUM_SEQUENCES, LENGTH = 400, 64
WORD = np.tile(np.arange(LENGTH, dtype=np.int32) // 4, (NUM_SEQUENCES, 1))
BATCH = SequenceBatch(
    np.full((NUM_SEQUENCES, LENGTH), 49, np.int32),
    TokenInfoArrays(word_ids=WORD),
    np.zeros(WORD.shape, np.bool_),
)
EVERYWHERE = np.tile(np.arange(LENGTH), (NUM_SEQUENCES, 1))
ALL = np.ones(EVERYWHERE.shape, np.float32)


def corrupt(corruption, weight=ALL, epoch=0, counts=None):
    index = np.arange(NUM_SEQUENCES)
    rng = CounterRng(7, corruption.repeated_epoch(epoch), index)
    selected = SelectedPositions(EVERYWHERE, weight, WORD.astype(np.int64))
    return corruption.corrupt(BATCH, selected, Vocabulary(VOCABULARY, SPECIALS, counts), rng)


def test_fractions():
    token_ids = corrupt(TokenReplacement())
    assert np.mean(token_ids == MASK) == pytest.approx(0.8 + 0.1 / 50, abs=0.01)
    assert np.mean(token_ids == 49) == pytest.approx(0.1 + 0.1 / 50, abs=0.01)


def test_pure_fractions():
    assert (corrupt(TokenReplacement(mask=1, random=0, keep=0)) == MASK).all()
    assert (corrupt(TokenReplacement(mask=0, random=0, keep=1)) == 49).all()


def test_random_tokens_cover_the_vocabulary():
    counts_by_token = np.bincount(corrupt(TokenReplacement(mask=0, random=1, keep=0)).ravel())
    assert len(counts_by_token) == VOCABULARY
    assert counts_by_token.min() > 0.8 * counts_by_token.mean()


def test_random_tokens_may_exclude_special_tokens():
    counts_by_token = np.bincount(
        corrupt(TokenReplacement(mask=0, random=1, keep=0, random_from="non-special")).ravel()
    )
    assert (counts_by_token[:5] == 0).all()
    assert counts_by_token[5:].min() > 0.8 * counts_by_token[5:].mean()


def test_random_tokens_may_follow_token_counts():
    counts = np.zeros(VOCABULARY, np.int64)
    counts[[7, VOCABULARY - 1]] = 300, 100
    token_ids = corrupt(
        TokenReplacement(mask=0, random=1, keep=0, random_from="unigram"), counts=counts
    )
    assert set(np.unique(token_ids)) == {7, VOCABULARY - 1}
    assert np.mean(token_ids == 7) == pytest.approx(0.75, abs=0.01)


def test_positions_of_weight_zero_are_unchanged():
    weight = np.where(EVERYWHERE % 2 == 0, np.float32(1), np.float32(0))
    token_ids = corrupt(TokenReplacement(mask=1, random=0, keep=0), weight)
    assert (token_ids[:, ::2] == MASK).all()
    assert (token_ids[:, 1::2] == 49).all()
    assert (BATCH.token_ids == 49).all()


def test_one_draw_per_selected_unit():
    masked = (
        corrupt(TokenReplacement(mask=0.5, random=0, keep=0.5, unit="selected")) == MASK
    ).reshape(-1, 4)
    assert (masked == masked[:, :1]).all()
    assert masked.mean() == pytest.approx(0.5, abs=0.02)
    per_token = (corrupt(TokenReplacement(mask=0.5, random=0, keep=0.5)) == MASK).reshape(-1, 4)
    assert (per_token != per_token[:, :1]).any()


def test_static_masks_repeat():
    static, dynamic = TokenReplacement(when="static", copies=3), TokenReplacement()
    np.testing.assert_array_equal(corrupt(static, epoch=1), corrupt(static, epoch=4))
    assert (corrupt(static, epoch=1) != corrupt(static, epoch=2)).any()
    assert (corrupt(dynamic, epoch=1) != corrupt(dynamic, epoch=11)).any()


def test_fractions_must_sum_to_one():
    with pytest.raises(ValidationError, match="must be 1"):
        Corruption.parse({"kind": "replace", "mask": 0.9})
