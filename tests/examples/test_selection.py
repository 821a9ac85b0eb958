"""Which places are asked: never twice, never a special, whole words whole, at the rate asked."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies
from numbered_text import SPECIALS, all_rows, documents, planned

from bertwright.errors import UserError
from bertwright.examples.assembly import DocSentences, SegmentPair
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.selection import FILLER, NGrams, Selection, Spans, Tokens, WholeWords
from bertwright.examples.selection.filling import fill
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

rates = strategies.floats(0.01, 0.9)
VOCABULARY = Vocabulary(5000, SPECIALS, np.arange(5000))
SELECTIONS = [Tokens(), Tokens(rarity=0.5), WholeWords(), NGrams(), Spans(), Spans(of="pieces")]


def rows_of_words(*words):
    """Rows from word indices; -1 is special. Every other pair of words is a phrase and a name."""
    word = np.array(words, np.int32)
    pieces = np.arange(word.size, dtype=np.int32).reshape(word.shape)
    phrase = np.where((word >= 0) & (word // 2 % 2 == 0), word // 4, -1).astype(np.int32)
    return Rows(pieces, Coordinates(word=word, phrase=phrase, entity=phrase), word < 0)


def select(selection, rows, rate, draw):
    """Places and weights (B, m), without the numbers of what belongs together."""
    chosen = selection.changed("selection", rate=rate).select(rows, VOCABULARY, draw, 0.0)
    return chosen.where, chosen.weight


@given(text=documents, rate=rates, seed=strategies.integers(0, 99))
@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda s: s.kind)
def test_selections_are_lawful(selection, text, rate, seed):
    for assembly in (DocSentences(length=24), SegmentPair(length=24)):
        rows = all_rows(planned(assembly, text)[0])
        where, weight = select(selection, rows, rate, Draw(seed, 3, np.arange(len(rows.pieces))))
        assert where.shape == weight.shape == (len(rows.pieces), max(1, round(rate * 24)))
        for row in range(len(where)):
            chosen = where[row][weight[row] > 0]
            assert (np.diff(chosen) > 0).all()
            assert not rows.special[row, chosen].any()
            assert (where[row][weight[row] == 0] == FILLER).all()
            budget = max(1, round(rate * rows.real[row].sum()))
            candidates = np.flatnonzero(~rows.special[row])
            assert len(chosen) <= budget
            words = rows.coordinates.word[row]
            whole = set(np.flatnonzero(np.isin(words, words[chosen]))) == set(chosen)
            if isinstance(selection, Tokens | Spans) or not whole:
                assert len(chosen) == min(budget, len(candidates))
                continue
            assert len(chosen) >= min(0.9 * budget, len(candidates))
            left = [np.sum(words == w) for w in set(words[candidates]) - set(words[chosen])]
            assert all(len(chosen) + size > budget for size in left)


def test_a_row_of_real_tokens_has_no_fillers():
    rows = rows_of_words([-1, 0, 1, 2, 3, 4, 5, 6, 7, -1])
    _, weight = select(Tokens(), rows, 0.4, Draw(0))
    assert weight.tolist() == [[1.0] * 4]


def test_fewer_candidates_than_questions():
    rows = rows_of_words([-1, 0, 1, -1, -1, -1])
    where, weight = select(Tokens(), rows, 0.9, Draw(0))
    assert where.tolist() == [[1, 2, 1, 1, 1]]
    assert weight.tolist() == [[1, 1, 0, 0, 0]]


def test_a_word_that_exceeds_the_budget_is_skipped():
    """While what is left is at most a tenth of the budget."""
    rows = rows_of_words([-1, *[0] * 20, *range(1, 10), -1])
    for seed in range(20):
        where, weight = select(WholeWords(), rows, 0.32, Draw(seed))  # ten tokens
        assert where.tolist() == [[*range(21, 30), 1]]
        assert weight.tolist() == [[*[1] * 9, 0]]


def test_single_tokens_fill_a_budget_that_no_word_fits():
    rows = rows_of_words([-1, 0, 0, 0, 0, 1, 2, -1])
    filling = set()
    for seed in range(40):
        where, weight = select(WholeWords(), rows, 0.4, Draw(seed))  # three tokens
        assert weight.tolist() == [[1, 1, 1]]
        assert where[0, 1:].tolist() == [5, 6]
        filling.add(int(where[0, 0]))
    assert filling == {1, 2, 3, 4}


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


@pytest.mark.parametrize("selection", [Tokens(), WholeWords()], ids=lambda s: s.kind)
def test_every_place_is_as_likely(selection):
    rows = rows_of_words([-1, *range(18), -1])
    epochs = 4000
    where, _ = select(
        selection,
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


OURS = [k for k, c in Selection.kinds().items() if c.__module__.startswith("bertwright.")]


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("rate", [0.05, 0.15, 0.4])
def test_every_selection_hides_as_much_as_it_is_asked_to(kind, rate):
    """Over many rows of words of one to three pieces, within the error of sampling places; some of
    the words are phrases and names.
    """
    sizes = np.random.default_rng(0).integers(1, 4, (64, 126))
    words = np.stack([np.repeat(np.arange(126), row)[:126] for row in sizes]).astype(np.int32)
    special = np.full((64, 1), -1, np.int32)
    rows = rows_of_words(*np.concatenate([special, words, special], axis=1))
    known = np.where(rows.coordinates.word % 3 == 0, rows.coordinates.word, -1)
    annotated = replace(rows.coordinates, phrase=known, entity=known)
    rows = replace(rows, coordinates=annotated)
    _, weight = select(Selection.choose(kind), rows, rate, Draw(0, 0, np.arange(64)))
    num_real = rows.real.sum()
    deviation = (rate * (1 - rate) / num_real) ** 0.5
    assert weight.sum() / num_real == pytest.approx(rate, abs=3 * deviation)


def test_a_scheduled_rate_keeps_its_shape():
    rows = rows_of_words([-1, *range(18), -1])
    falling = {"kind": "linear", "from": 0.3, "to": 0.15}
    for selection in SELECTIONS:
        chosen = selection.changed("selection", rate=falling).select(rows, VOCABULARY, Draw(0), 1.0)
        assert chosen.where.shape == (1, 6)
        assert chosen.weight.sum() == 3


def test_rates_may_be_schedules():
    settings = {"kind": "tokens", "rate": {"kind": "linear", "from": 0.3, "to": 0.15}}
    assert Selection.choose(settings).rate.at(0.0) == 0.3
    assert Selection.choose("whole-words").rate.at(0.5) == 0.15


@pytest.mark.parametrize("selection", [WholeWords(), Spans(), NGrams()], ids=lambda s: s.kind)
def test_words_need_words(selection):
    rows = rows_of_words([-1, 0, 1, -1])
    with pytest.raises(UserError, match="words"):
        select(selection, Rows(rows.pieces, Coordinates(), rows.special), 0.5, Draw(0))


def test_rare_pieces_are_asked_more_often():
    rows = rows_of_words(*[[-1, 0, 1, -1]] * 4000)
    pieces = np.tile(np.array([0, 1, 2, 3], np.int32), (4000, 1))
    counts = Vocabulary(4, SPECIALS, np.array([1, 100, 1, 1]))
    rows = Rows(pieces, rows.coordinates, rows.special)
    chosen = Tokens(rarity=0.5, rate=0.25).select(rows, counts, Draw(0, 0, np.arange(4000)), 0.0)
    assert np.mean(chosen.where == 2) == pytest.approx(10 / 11, abs=0.02)


def test_words_are_whole_in_a_share_of_the_rows():
    """Which rises with the training; every row is as one or the other selection has it."""
    rows = rows_of_words(*[[-1, *np.repeat(range(9), 2), -1]] * 400)
    rising = Selection.choose(
        {"kind": "whole-words", "whole": {"kind": "linear", "from": 0, "to": 1}}
    )
    draw = Draw(0, 0, np.arange(400))
    apart, together = (
        s.select(rows, VOCABULARY, draw, 0.0).where for s in (Tokens(), WholeWords())
    )
    differ = (apart != together).any(1)
    for progress in (0.0, 0.25, 1.0):
        chosen = rising.select(rows, VOCABULARY, draw, progress).where
        whole = (chosen == together).all(1)
        assert (whole | (chosen == apart).all(1)).all()
        assert whole[differ].mean() == pytest.approx(progress, abs=0.08)
