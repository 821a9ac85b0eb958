"""Packed rows: every piece once, no padding, another cut every epoch."""

import numpy as np
import pytest
from hypothesis import given
from numbered_text import FIRST_PIECE, PAD, all_rows, documents, planned, text_of

from bertwright.errors import UserError
from bertwright.examples.assembly import Packed

LENGTH = 10
TEXT = [[[1, 2, 1], [3]], [[2, 2], [1]], [[1] * 9, [4, 4]], [[2]] * 3, [[3, 3]] * 8]


@given(text=documents)
def test_each_piece_is_used_once_but_for_the_ends_of_the_stream(text):
    try:
        source, split = planned(Packed(length=LENGTH), text)
    except UserError:
        return
    for epoch in range(4):
        rows = all_rows(source, epoch)
        used = np.concatenate(text_of(rows)) - FIRST_PIECE
        np.testing.assert_array_equal(used, used[0] + np.arange(len(used)))
        assert split.num_pieces - len(used) < 2 * LENGTH
        assert PAD not in rows.pieces


def test_every_epoch_is_cut_elsewhere_and_every_cut_happens():
    source, _ = planned(Packed(length=LENGTH), TEXT)
    first_pieces = {int(source.rows(np.array([0]), epoch).pieces[0, 1]) for epoch in range(200)}
    assert len(first_pieces) >= LENGTH - 2
    assert FIRST_PIECE in first_pieces


def test_seeds_differ():
    one, two = (planned(Packed(length=LENGTH), TEXT, seed)[0] for seed in (0, 1))
    assert any(
        (all_rows(one, epoch).pieces != all_rows(two, epoch).pieces).any() for epoch in range(3)
    )


def test_too_little_text_is_an_error_that_says_so():
    with pytest.raises(UserError, match="train split holds 3 pieces"):
        planned(Packed(length=LENGTH), [[[3]]])


def test_text_for_exactly_one_row():
    source, _ = planned(Packed(length=LENGTH), [[[3]], [[3]]])
    assert all_rows(source, 5).pieces.tolist() == [[2, 100, 101, 102, 3, 2, 103, 104, 105, 3]]
