"""Shuffled runs: what changes place, and what is asked of it."""

import numpy as np
import pytest
from hypothesis import assume, given, strategies
from numbered_text import SPECIALS, Documents, all_rows, documents, planned

from bertwright.errors import UserError
from bertwright.examples.assembly import Assembly, Contiguous, SegmentPair
from bertwright.examples.coordinates import Rows
from bertwright.examples.corruption import Replace
from bertwright.examples.questions import hide, span_boundary
from bertwright.examples.selection import Tokens
from bertwright.examples.shuffling import shuffle_runs
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw


def rows_of(assembly: Assembly, text: Documents) -> Rows:
    try:
        return all_rows(planned(assembly, text)[0])
    except UserError:  # too little text for one row
        assume(False)
        raise


# With special pieces around the text, and without any.
framed = strategies.sampled_from([SegmentPair(length=24), Contiguous(length=24)])


@given(
    text=documents, of=framed, size=strategies.integers(2, 4), rate=strategies.floats(0.05, 0.99)
)
def test_runs_are_permuted_in_place_and_asked_for(text, of, size, rate):
    rows = rows_of(of, text)
    kept = np.arange(24) % 5 == 0
    kept = np.broadcast_to(kept, rows.pieces.shape)
    shown, question = shuffle_runs(rows, kept, size, rate, Draw(1, 2, np.arange(len(kept))))
    changed = shown.pieces != rows.pieces
    assert not (changed & (rows.special | kept)).any()
    asked = np.zeros(kept.size, np.bool_)
    asked[question.where[question.weight > 0]] = True
    assert not (changed.ravel() & ~asked).any()
    right = rows.pieces.ravel()[question.where] == question.target
    assert right.all()
    per_row = question.weight.reshape(len(kept), -1).sum(axis=1)
    assert set((per_row % size).tolist()) <= {0}
    budget = np.maximum(np.rint(rate * rows.real.sum(axis=1)) // size, 1) * size
    assert (per_row <= budget).all()
    for run in question.where[question.weight > 0].reshape(-1, size):
        assert sorted(shown.pieces.ravel()[run]) == sorted(rows.pieces.ravel()[run])


def test_runs_that_no_row_holds_are_refused():
    rows = rows_of(SegmentPair(length=24), [[[1, 1, 1]] * 20] * 4)
    kept = np.zeros(rows.pieces.shape, np.bool_)
    draw = Draw(0, 0, np.arange(len(rows.pieces)))
    assert shuffle_runs(rows, kept, 12, 0.05, draw)[1].weight.size
    with pytest.raises(UserError, match="size to 12 at most"):
        shuffle_runs(rows, kept, 13, 0.05, draw)


@given(text=documents, of=framed, rate=strategies.floats(0.1, 0.6))
def test_boundaries_are_the_nearest_places_that_are_not_hidden(text, of, rate):
    rows = rows_of(of, text)
    vocabulary, draw = Vocabulary(500, SPECIALS), Draw(0, 0, np.arange(len(rows.pieces)))
    _, hidden = hide(rows, Tokens(rate=rate), Replace(), vocabulary, draw, 0.0)
    question = span_boundary(rows, hidden, longest=3)
    open_places = np.ones(rows.pieces.size, np.bool_)
    open_places[hidden.where[hidden.weight > 0]] = False
    special = rows.special.ravel()
    for where, weight, left, right, offset in zip(
        question.where,
        question.weight,
        *(question.beside[name] for name in ("left", "right", "offset")),
        strict=True,
    ):
        if weight == 0:
            continue
        assert left < where < right
        assert left // 24 == right // 24
        assert open_places[left]
        assert open_places[right]
        assert not open_places[left + 1 : right].any()
        assert not special[left : right + 1].any()
        assert offset == where - left - 1 < 3
    assert (question.target == hidden.target).all()
