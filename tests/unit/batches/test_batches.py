"""Batches: the same sequences and targets however they are divided among processes."""

import numpy as np
import pytest

from bertwright.batches.batch import make_batch
from bertwright.batches.formats import DocSentences, SegmentPair
from bertwright.batches.masking import TokenSelection
from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.batches.targets import mask_tokens, relation_targets
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from numbered_text import SPECIALS, plan_text

TEXT = [[[2, 1, 1], [3], [1, 1], [2, 2]] * 3] * 5


def make_masked_targets(batch, epoch, index, earlier_targets):
    rng = CounterRng(3, epoch, index)
    return mask_tokens(
        batch,
        TokenSelection(masking_rate=0.25),
        TokenReplacement(),
        Vocabulary(50, SPECIALS),
        rng,
        0.0,
    )


def make_relation_targets(batch, epoch, index, earlier_targets):
    return batch, relation_targets(batch, ("next", "random"))


TARGET_MAKERS = {"masked": make_masked_targets, "next-sentence": make_relation_targets}


def test_half_a_batch_is_half_of_the_batch():
    source, _ = plan_text(SegmentPair(length=16), TEXT)
    index, epoch = np.array([3, 1, 4, 0]), np.array([0, 0, 1, 1])
    full = make_batch(source, index, epoch, TARGET_MAKERS)
    halves = [
        make_batch(source, index[i : i + 2], epoch[i : i + 2], TARGET_MAKERS, first_sequence=i)
        for i in (0, 2)
    ]
    np.testing.assert_array_equal(full.token_ids, np.concatenate([h.token_ids for h in halves]))
    for name in TARGET_MAKERS:
        for field in ("labels", "weights"):
            np.testing.assert_array_equal(
                getattr(full.targets[name], field),
                np.concatenate([getattr(h.targets[name], field) for h in halves]),
            )
        positions = [h.targets[name].positions + 16 * h.first_sequence for h in halves]
        np.testing.assert_array_equal(full.targets[name].positions, np.concatenate(positions))
    assert full.first_sequence == 0
    assert full.num_tokens == sum(h.num_tokens for h in halves)


def test_the_achieved_rate_counts_real_tokens():
    source, _ = plan_text(DocSentences(length=32), TEXT)
    batch = make_batch(
        source,
        np.arange(source.num_sequences),
        np.zeros(source.num_sequences, np.int64),
        {"masked": make_masked_targets},
    )
    assert batch.num_tokens < batch.token_ids.size
    assert np.divide(*batch.masked_counts("masked")) == pytest.approx(0.25, abs=0.02)
