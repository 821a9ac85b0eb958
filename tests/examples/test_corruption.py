"""What is shown at the chosen places."""

import numpy as np
import pytest
from numbered_text import MASK, SPECIALS
from pydantic import ValidationError

from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.corruption import Corruption, Replace
from bertwright.examples.selection import Chosen
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

VOCABULARY = 50
NUM_ROWS, LENGTH = 400, 64
WORD = np.tile(np.arange(LENGTH, dtype=np.int32) // 4, (NUM_ROWS, 1))
ROWS = Rows(
    np.full((NUM_ROWS, LENGTH), 49, np.int32),
    Coordinates(word=WORD),
    np.zeros(WORD.shape, np.bool_),
)
EVERYWHERE = np.tile(np.arange(LENGTH), (NUM_ROWS, 1))
ALL = np.ones(EVERYWHERE.shape, np.float32)


def shown(corruption, weight=ALL, epoch=0, counts=None):
    index = np.arange(NUM_ROWS)
    draw = Draw(7, corruption.visit(epoch), index)
    chosen = Chosen(EVERYWHERE, weight, WORD.astype(np.int64))
    return corruption.corrupt(ROWS, chosen, Vocabulary(VOCABULARY, SPECIALS, counts), draw)


def test_shares():
    pieces = shown(Replace())
    assert np.mean(pieces == MASK) == pytest.approx(0.8 + 0.1 / 50, abs=0.01)
    assert np.mean(pieces == 49) == pytest.approx(0.1 + 0.1 / 50, abs=0.01)


def test_pure_shares():
    assert (shown(Replace(mask=1, random=0, keep=0)) == MASK).all()
    assert (shown(Replace(mask=0, random=0, keep=1)) == 49).all()


def test_random_pieces_come_from_the_vocabulary():
    drawn = np.bincount(shown(Replace(mask=0, random=1, keep=0)).ravel())
    assert len(drawn) == VOCABULARY
    assert drawn.min() > 0.8 * drawn.mean()


def test_random_pieces_may_leave_out_the_specials():
    drawn = np.bincount(shown(Replace(mask=0, random=1, keep=0, random_from="non-special")).ravel())
    assert (drawn[:5] == 0).all()
    assert drawn[5:].min() > 0.8 * drawn[5:].mean()


def test_random_pieces_may_follow_the_text():
    counts = np.zeros(VOCABULARY, np.int64)
    counts[[7, 9]] = 300, 100
    pieces = shown(Replace(mask=0, random=1, keep=0, random_from="unigram"), counts=counts)
    assert set(np.unique(pieces)) == {7, 9}
    assert np.mean(pieces == 7) == pytest.approx(0.75, abs=0.01)


def test_places_of_no_weight_keep_their_piece():
    weight = np.where(EVERYWHERE % 2 == 0, np.float32(1), np.float32(0))
    pieces = shown(Replace(mask=1, random=0, keep=0), weight)
    assert (pieces[:, ::2] == MASK).all()
    assert (pieces[:, 1::2] == 49).all()
    assert (ROWS.pieces == 49).all()


def test_the_die_may_be_cast_for_what_was_selected_together():
    masked = (shown(Replace(mask=0.5, random=0, keep=0.5, unit="selected")) == MASK).reshape(-1, 4)
    assert (masked == masked[:, :1]).all()
    assert masked.mean() == pytest.approx(0.5, abs=0.02)
    per_piece = (shown(Replace(mask=0.5, random=0, keep=0.5)) == MASK).reshape(-1, 4)
    assert (per_piece != per_piece[:, :1]).any()


def test_static_masks_return_and_dynamic_ones_do_not():
    static, dynamic = Replace(when="static", copies=3), Replace()
    np.testing.assert_array_equal(shown(static, epoch=1), shown(static, epoch=4))
    assert (shown(static, epoch=1) != shown(static, epoch=2)).any()
    assert (shown(dynamic, epoch=1) != shown(dynamic, epoch=11)).any()


def test_shares_must_be_the_whole():
    with pytest.raises(ValidationError, match="must be 1"):
        Corruption.choose({"kind": "replace", "mask": 0.9})
