"""Packed rows: every piece once, no padding, another cut every epoch."""

import numpy as np
import pytest
from hypothesis import given
from numbered_text import CLS, FIRST_PIECE, PAD, all_rows, documents, planned, text_of

from bertwright.errors import UserError
from bertwright.examples.assembly import Contiguous, Packed

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


def test_isolated_rows_in_the_order_of_the_text_say_where_a_document_goes_on():
    source, _ = planned(Contiguous(length=LENGTH, isolated=True), TEXT)
    rows = all_rows(source, 0)
    stream, document = rows.pieces.ravel(), rows.coordinates.document
    begins = rows.pieces == CLS
    # The first of a row goes on with document 0 unless it begins one, which then is 1.
    np.testing.assert_array_equal(document, np.cumsum(begins, axis=1))
    assert (document[:, 0] == 0).any()
    assert len(set(stream[stream >= FIRST_PIECE])) == (stream >= FIRST_PIECE).sum()
    plain = all_rows(planned(Contiguous(length=LENGTH), TEXT)[0], 0)
    assert not plain.coordinates.document.any()
    assert not (plain.pieces == CLS).any()
