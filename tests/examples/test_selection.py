"""Which places are asked: never twice, never a special, whole words whole, at the rate asked."""

import numpy as np
import pytest
from hypothesis import given, strategies
from numbered_text import all_rows, documents, planned

from bertwright.errors import UserError
from bertwright.examples.assembly import DocSentences, SegmentPair
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.selection import FILLER, Selection, Tokens, WholeWords, fill
from bertwright.randomness import Draw

rates = strategies.floats(0.01, 0.9)


def rows_of_words(*words):
    """Rows from word indices; -1 is special."""
    word = np.array(words, np.int32)
    pieces = np.arange(word.size, dtype=np.int32).reshape(word.shape)
    return Rows(pieces, Coordinates(word=word), word < 0)


@given(text=documents, rate=rates, seed=strategies.integers(0, 99))
@pytest.mark.parametrize("selection", [Tokens(), WholeWords()], ids=["tokens", "whole-words"])
def test_selections_are_lawful(selection, text, rate, seed):
    for assembly in (DocSentences(length=24), SegmentPair(length=24)):
        rows = all_rows(planned(assembly, text)[0])
        where, weight = selection.select(rows, rate, Draw(seed, 3, np.arange(len(rows.pieces))))
        assert where.shape == weight.shape == (len(rows.pieces), max(1, round(rate * 24)))
        for row in range(len(where)):
            chosen = where[row][weight[row] > 0]
            assert (np.diff(chosen) > 0).all()
            assert not rows.special[row, chosen].any()
            assert (where[row][weight[row] == 0] == FILLER).all()
            budget = max(1, round(rate * rows.real[row].sum()))
            candidates = np.flatnonzero(~rows.special[row])
            if isinstance(selection, Tokens):
                assert len(chosen) == min(budget, len(candidates))
                continue
            words = rows.coordinates.word[row]
            assert set(np.flatnonzero(np.isin(words, words[chosen]))) == set(chosen)
            left = [np.sum(words == w) for w in set(words[candidates]) - set(words[chosen])]
            assert len(chosen) <= budget
            assert all(len(chosen) + size > budget for size in left)


def test_a_row_of_real_tokens_has_no_fillers():
    rows = rows_of_words([-1, 0, 1, 2, 3, 4, 5, 6, 7, -1])
    _, weight = Tokens().select(rows, 0.4, Draw(0))
    assert weight.tolist() == [[1.0] * 4]


def test_fewer_candidates_than_questions():
    rows = rows_of_words([-1, 0, 1, -1, -1, -1])
    where, weight = Tokens().select(rows, 0.9, Draw(0))
    assert where.tolist() == [[1, 2, 1, 1, 1]]
    assert weight.tolist() == [[1, 1, 0, 0, 0]]


def test_a_word_that_exceeds_the_budget_is_skipped():
    rows = rows_of_words([-1, 0, 0, 0, 0, 1, 2, -1])
    for seed in range(20):
        where, weight = WholeWords().select(rows, 0.4, Draw(seed))  # three pieces
        assert where.tolist() == [[5, 6, 1]]
        assert weight.tolist() == [[1, 1, 0]]


@given(
    sizes=strategies.lists(strategies.integers(0, 5), min_size=1, max_size=20),
    budget=strategies.integers(1, 20),
)
def test_filling_is_the_loop_of_the_official_code(sizes, budget):
    taken, total = [], 0
    for size in sizes:
        fits = 0 < size <= budget - total
        taken.append(fits)
        total += size * fits
    assert fill(np.array([sizes]), np.array([[budget]])).tolist() == [taken]


@pytest.mark.parametrize("selection", [Tokens(), WholeWords()], ids=["tokens", "whole-words"])
def test_every_place_is_as_likely(selection):
    rows = rows_of_words([-1, *range(18), -1])
    epochs = 4000
    where, _ = selection.select(
        Rows(
            np.repeat(rows.pieces, epochs, 0),
            Coordinates(word=np.repeat(rows.coordinates.word, epochs, 0)),
            np.repeat(rows.special, epochs, 0),
        ),
        0.15,
        Draw(0, np.arange(epochs)),
    )
    counts = np.bincount(where.ravel(), minlength=20)
    assert counts[[0, 19]].tolist() == [0, 0]
    expected = 3 * epochs / 18
    assert ((counts[1:19] - expected) ** 2 / expected).sum() < 45  # chi-squared, 17 degrees


def test_a_scheduled_rate_keeps_its_shape():
    rows = rows_of_words([-1, *range(18), -1])
    for selection in (Tokens(), WholeWords()):
        where, weight = selection.select(rows, 0.15, Draw(0), slots=6)
        assert where.shape == (1, 6)
        assert weight.sum() == 3


def test_rates_may_be_schedules():
    settings = {"kind": "tokens", "rate": {"kind": "linear", "from": 0.3, "to": 0.15}}
    assert Selection.choose(settings).rate.at(0.0) == 0.3
    assert Selection.choose("whole-words").rate.at(0.5) == 0.15


def test_whole_words_need_words():
    rows = rows_of_words([-1, 0, 1, -1])
    with pytest.raises(UserError, match="words"):
        WholeWords().select(Rows(rows.pieces, Coordinates(), rows.special), 0.5, Draw(0))
