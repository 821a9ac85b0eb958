"""Spans and n-grams: their lengths, their places, and what belongs together."""

import numpy as np
import pytest
from numbered_text import SPECIALS

from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.selection import NGrams, Spans
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

VOCABULARY = Vocabulary(50, SPECIALS)


def rows_of(word, num_rows):
    """Equal rows from word indices; -1 is special."""
    words = np.tile(np.array(word, np.int32), (num_rows, 1))
    return Rows(np.zeros_like(words), Coordinates(word=words), words < 0)


def chosen(selection, rows, rate):
    draw = Draw(3, 0, np.arange(len(rows.pieces)))
    return selection.changed("selection", rate=rate).select(rows, VOCABULARY, draw, 0.0)


def test_the_mean_length_is_that_of_the_renormalised_law():
    lengths = np.arange(1, 11)
    assert Spans().probabilities @ lengths == pytest.approx(3.797, abs=1e-3)
    assert NGrams().probabilities.tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11])


@pytest.mark.parametrize("selection", [Spans(), NGrams(), Spans(law="uniform", longest=3)])
def test_lengths_follow_their_law(selection):
    found = chosen(selection, rows_of([-1, *range(4000), -1], 80), 0.02)
    row = np.arange(80)[:, None] * 5000
    sizes = np.unique(row + found.unit, return_counts=True)[1]
    share = np.bincount(sizes, minlength=31)[1 : selection.longest + 1] / len(sizes)
    assert share == pytest.approx(selection.probabilities, abs=0.04)


def test_spans_begin_with_words_and_n_grams_end_with_them():
    word = [-1, 0, 0, 0, 1, 2, 2, 3, -1, 4, 4, 5, 6, 6, 6, 7, *range(8, 20), -1]
    begins = {1, 4, 5, 7, 9, 11, 12, *range(15, 28)}
    rows = rows_of(word, 500)
    for selection in (Spans(), NGrams()):
        found = chosen(selection, rows, 0.3)
        for where, weight, unit in zip(found.where, found.weight, found.unit, strict=True):
            kept = where[weight > 0]
            assert not {0, 8, 28} & set(kept.tolist())
            assert set(unit[weight > 0].tolist()) <= begins
            if isinstance(selection, NGrams):
                words = np.array(word)
                whole = np.flatnonzero(np.isin(words, words[kept]))
                assert whole.tolist() == kept.tolist()


def test_spans_that_touch_are_one():
    rows = rows_of([-1, *range(20), -1], 400)
    found = chosen(Spans(longest=2), rows, 0.6)
    for where, weight, unit in zip(found.where, found.weight, found.unit, strict=True):
        kept = where[weight > 0]
        begins = np.concatenate([[True], np.diff(kept) > 1])
        assert unit[weight > 0].tolist() == kept[begins][np.cumsum(begins) - 1].tolist()


@pytest.mark.parametrize("of", ["words", "pieces"])
def test_spans_that_are_not_merged_are_as_long_as_they_were_drawn(of):
    rows = rows_of([-1, *range(20), -1], 400)
    apart, merged = (
        chosen(Spans(law="uniform", longest=3, of=of, merged=own), rows, 0.6)
        for own in (False, True)
    )
    np.testing.assert_array_equal(apart.where, merged.where)
    assert (apart.weight == 1).all()
    row = np.arange(400)[:, None] * 100
    longest, longest_run = (
        np.unique(row + c.unit, return_counts=True)[1].max() for c in (apart, merged)
    )
    assert longest == 3 < longest_run
