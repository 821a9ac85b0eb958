"""Shuffled runs: what changes place, and what is asked of it."""

import numpy as np
from hypothesis import given, strategies
from numbered_text import SPECIALS, all_rows, documents, planned

from bertwright.examples.assembly import SegmentPair
from bertwright.examples.corruption import Replace
from bertwright.examples.questions import hide, span_boundary
from bertwright.examples.selection import Tokens
from bertwright.examples.shuffling import shuffle_runs
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw


@given(text=documents, size=strategies.integers(2, 4), rate=strategies.floats(0.05, 0.5))
def test_runs_are_permuted_in_place_and_asked_for(text, size, rate):
    rows = all_rows(planned(SegmentPair(length=24), text)[0])
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


@given(text=documents, rate=strategies.floats(0.1, 0.6))
def test_boundaries_are_the_nearest_places_that_are_not_hidden(text, rate):
    rows = all_rows(planned(SegmentPair(length=24), text)[0])
    vocabulary, draw = Vocabulary(500, SPECIALS), Draw(0, 0, np.arange(len(rows.pieces)))
    _, hidden = hide(rows, Tokens(), Replace(), vocabulary, draw, rate)
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
        assert open_places[left]
        assert open_places[right]
        assert not open_places[left + 1 : right].any()
        assert not special[left : right + 1].any()
        assert offset == where - left - 1 < 3
    assert (question.target == hidden.target).all()
