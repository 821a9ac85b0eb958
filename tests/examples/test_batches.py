"""Batches: the same rows and questions however they are divided among processes."""

import numpy as np
import pytest
from numbered_text import SPECIALS, planned

from bertwright.examples.assembly import DocSentences, SegmentPair
from bertwright.examples.batches import make_batch
from bertwright.examples.corruption import Replace
from bertwright.examples.questions import hide, sentence_relation
from bertwright.examples.selection import Tokens
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

TEXT = [[[2, 1, 1], [3], [1, 1], [2, 2]] * 3] * 5


def masked(rows, epoch, index, before):
    draw = Draw(3, epoch, index)
    return hide(rows, Tokens(rate=0.25), Replace(), Vocabulary(50, SPECIALS), draw, 0.0)


def relation(rows, epoch, index, before):
    return rows, sentence_relation(rows, ("next", "random"))


ASK = {"masked": masked, "next-sentence": relation}


def test_half_a_batch_is_half_of_the_batch():
    source, _ = planned(SegmentPair(length=16), TEXT)
    index, epoch = np.array([3, 1, 4, 0]), np.array([0, 0, 1, 1])
    whole = make_batch(source, index, epoch, ASK)
    halves = [
        make_batch(source, index[i : i + 2], epoch[i : i + 2], ASK, first_row=i) for i in (0, 2)
    ]
    np.testing.assert_array_equal(whole.pieces, np.concatenate([h.pieces for h in halves]))
    for name in ASK:
        for field in ("target", "weight"):
            np.testing.assert_array_equal(
                getattr(whole.questions[name], field),
                np.concatenate([getattr(h.questions[name], field) for h in halves]),
            )
        where = [h.questions[name].where + 16 * h.first_row for h in halves]
        np.testing.assert_array_equal(whole.questions[name].where, np.concatenate(where))
    assert whole.num_tokens == sum(h.num_tokens for h in halves)


def test_the_achieved_rate_counts_real_tokens():
    source, _ = planned(DocSentences(length=32), TEXT)
    batch = make_batch(
        source, np.arange(source.num_rows), np.zeros(source.num_rows, np.int64), {"masked": masked}
    )
    assert batch.num_tokens < batch.pieces.size
    assert np.divide(*batch.hidden("masked")) == pytest.approx(0.25, abs=0.02)
