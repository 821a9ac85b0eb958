"""Selected positions: distinct, no special tokens, whole words, at the masking rate."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies

from bertwright.batches.formats import DocSentences, SegmentPair
from bertwright.batches.masking import (
    FILLER_POSITION,
    MaskSelection,
    NGramSelection,
    SpacedSpanSelection,
    SpanSelection,
    TokenSelection,
    WholeWordSelection,
)
from bertwright.batches.masking.selection import fits_in_budget
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from numbered_text import SPECIALS, all_sequences, documents, plan_text

rates = strategies.floats(0.01, 0.9)
VOCABULARY = Vocabulary(5000, SPECIALS, np.arange(5000))
SELECTIONS = [
    TokenSelection(),
    TokenSelection(rarity=0.5),
    WholeWordSelection(),
    NGramSelection(),
    SpacedSpanSelection(),
    SpacedSpanSelection(parts=3),
    SpanSelection(),
    SpanSelection(of="tokens"),
]
FILLING = TokenSelection | SpacedSpanSelection | SpanSelection
"""Selections that always spend their budget."""


def batch_of_words(*words):
    """Return sequences of word ids, -1 for special; every other word pair is phrase and entity."""
    word = np.array(words, np.int32)
    token_ids = np.arange(word.size, dtype=np.int32).reshape(word.shape)
    phrase = np.where((word >= 0) & (word // 2 % 2 == 0), word // 4, -1).astype(np.int32)
    return SequenceBatch(
        token_ids, TokenInfoArrays(word_ids=word, phrase_ids=phrase, entity_ids=phrase), word < 0
    )


def select(selection, batch, rate, rng):
    """Return positions and weights (B, m)."""
    selected = selection.copy_with("selection", masking_rate=rate).select(
        batch, VOCABULARY, rng, 0.0
    )
    return selected.positions, selected.weights


@given(text=documents, rate=rates, seed=strategies.integers(0, 99))
@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda s: s.kind)
def test_selection_properties(selection, text, rate, seed):
    for input_format in (DocSentences(length=24), SegmentPair(length=24)):
        batch = all_sequences(plan_text(input_format, text)[0])
        positions, weights = select(
            selection, batch, rate, CounterRng(seed, 3, np.arange(len(batch.token_ids)))
        )
        assert positions.shape == weights.shape == (len(batch.token_ids), max(1, round(rate * 24)))
        for i in range(len(positions)):
            selected = positions[i][weights[i] > 0]
            assert (np.diff(selected) > 0).all()
            assert not batch.is_special[i, selected].any()
            assert (positions[i][weights[i] == 0] == FILLER_POSITION).all()
            budget = max(1, round(rate * batch.is_real[i].sum()))
            candidates = np.flatnonzero(~batch.is_special[i])
            assert len(selected) <= budget
            words = batch.token_info.word_ids[i]
            whole = set(np.flatnonzero(np.isin(words, words[selected]))) == set(selected)
            if isinstance(selection, FILLING) or not whole:
                assert len(selected) == min(budget, len(candidates))
                continue
            assert len(selected) >= min(0.9 * budget, len(candidates))
            skipped_sizes = [
                np.sum(words == w) for w in set(words[candidates]) - set(words[selected])
            ]
            assert all(len(selected) + size > budget for size in skipped_sizes)


def test_full_sequence_has_no_fillers():
    batch = batch_of_words([-1, 0, 1, 2, 3, 4, 5, 6, 7, -1])
    _, weights = select(TokenSelection(), batch, 0.4, CounterRng(0))
    assert weights.tolist() == [[1.0] * 4]


def test_fewer_candidates_than_slots():
    batch = batch_of_words([-1, 0, 1, -1, -1, -1])
    positions, weights = select(TokenSelection(), batch, 0.9, CounterRng(0))
    assert positions.tolist() == [[1, 2, 1, 1, 1]]
    assert weights.tolist() == [[1, 1, 0, 0, 0]]


def test_word_exceeding_the_budget_is_skipped():
    """If the rest is at most a tenth of the budget."""
    batch = batch_of_words([-1, *[0] * 20, *range(1, 10), -1])
    for seed in range(20):
        positions, weights = select(
            WholeWordSelection(), batch, 0.32, CounterRng(seed)
        )  # ten tokens
        assert positions.tolist() == [[*range(21, 30), 1]]
        assert weights.tolist() == [[*[1] * 9, 0]]


def test_single_tokens_fill_a_budget_that_no_word_fits():
    batch = batch_of_words([-1, 0, 0, 0, 0, 1, 2, -1])
    fillers = set()
    for seed in range(40):
        positions, weights = select(
            WholeWordSelection(), batch, 0.4, CounterRng(seed)
        )  # three tokens
        assert weights.tolist() == [[1, 1, 1]]
        assert positions[0, 1:].tolist() == [5, 6]
        fillers.add(int(positions[0, 0]))
    assert fillers == {1, 2, 3, 4}


@given(
    sizes=strategies.lists(strategies.integers(0, 5), min_size=1, max_size=20),
    budget=strategies.integers(1, 20),
)
def test_budget_filling_equals_the_official_loop(sizes, budget):
    expected, total = [], 0
    for size in sizes:
        fits = 0 < size <= budget - total
        expected.append(fits)
        total += size * fits
    assert fits_in_budget(np.array([sizes]), np.array([[budget]])).tolist() == [expected]


@pytest.mark.parametrize(
    "selection", [TokenSelection(), WholeWordSelection()], ids=lambda s: s.kind
)
def test_positions_are_uniform(selection):
    batch = batch_of_words([-1, *range(18), -1])
    epochs = 4000
    positions, _ = select(
        selection,
        SequenceBatch(
            np.repeat(batch.token_ids, epochs, 0),
            TokenInfoArrays(word_ids=np.repeat(batch.token_info.word_ids, epochs, 0)),
            np.repeat(batch.is_special, epochs, 0),
        ),
        0.15,
        CounterRng(0, np.arange(epochs)),
    )
    counts = np.bincount(positions.ravel(), minlength=20)
    assert counts[[0, 19]].tolist() == [0, 0]
    expected = 3 * epochs / 18
    assert ((counts[1:19] - expected) ** 2 / expected).sum() < 45  # chi-squared, 17 degrees


BUILT_IN_KINDS = [
    k for k, c in MaskSelection.kinds().items() if c.__module__.startswith("bertwright.")
]


@pytest.mark.parametrize("kind", BUILT_IN_KINDS)
@pytest.mark.parametrize("rate", [0.05, 0.15, 0.4])
def test_achieved_masking_rate(kind, rate):
    """The rate over many sequences, within sampling error."""
    sizes = np.random.default_rng(0).integers(1, 4, (64, 126))
    words = np.stack([np.repeat(np.arange(126), i)[:126] for i in sizes]).astype(np.int32)
    special = np.full((64, 1), -1, np.int32)
    batch = batch_of_words(*np.concatenate([special, words, special], axis=1))
    unit_ids = np.where(batch.token_info.word_ids % 3 == 0, batch.token_info.word_ids, -1)
    annotated = replace(batch.token_info, phrase_ids=unit_ids, entity_ids=unit_ids)
    batch = replace(batch, token_info=annotated)
    _, weights = select(MaskSelection.parse(kind), batch, rate, CounterRng(0, 0, np.arange(64)))
    num_real = batch.is_real.sum()
    deviation = (rate * (1 - rate) / num_real) ** 0.5
    assert weights.sum() / num_real == pytest.approx(rate, abs=3 * deviation)


def test_scheduled_rate_keeps_shapes():
    batch = batch_of_words([-1, *range(18), -1])
    falling = {"kind": "linear", "from": 0.3, "to": 0.15}
    for selection in SELECTIONS:
        selected = selection.copy_with("selection", masking_rate=falling).select(
            batch, VOCABULARY, CounterRng(0), 1.0
        )
        assert selected.positions.shape == (1, 6)
        assert selected.weights.sum() == 3


def test_rates_may_be_schedules():
    settings = {"kind": "tokens", "masking_rate": {"kind": "linear", "from": 0.3, "to": 0.15}}
    assert MaskSelection.parse(settings).masking_rate.at(0.0) == 0.3
    assert MaskSelection.parse("whole-words").masking_rate.at(0.5) == 0.15


@pytest.mark.parametrize(
    "selection", [WholeWordSelection(), SpanSelection(), NGramSelection()], ids=lambda s: s.kind
)
def test_missing_word_boundaries_are_an_error(selection):
    batch = batch_of_words([-1, 0, 1, -1])
    with pytest.raises(UserError, match="words"):
        select(
            selection,
            SequenceBatch(batch.token_ids, TokenInfoArrays(), batch.is_special),
            0.5,
            CounterRng(0),
        )


def test_rare_tokens_are_selected_more_often():
    batch = batch_of_words(*[[-1, 0, 1, -1]] * 4000)
    token_ids = np.tile(np.array([0, 1, 2, 3], np.int32), (4000, 1))
    counts = Vocabulary(4, SPECIALS, np.array([1, 100, 1, 1]))
    batch = SequenceBatch(token_ids, batch.token_info, batch.is_special)
    selected = TokenSelection(rarity=0.5, masking_rate=0.25).select(
        batch, counts, CounterRng(0, 0, np.arange(4000)), 0.0
    )
    assert np.mean(selected.positions == 2) == pytest.approx(10 / 11, abs=0.02)


def test_whole_words_in_a_fraction_of_sequences():
    """The fraction rises with training; each sequence equals one of both selections."""
    batch = batch_of_words(*[[-1, *np.repeat(range(9), 2), -1]] * 400)
    selection = MaskSelection.parse(
        {"kind": "whole-words", "whole": {"kind": "linear", "from": 0, "to": 1}}
    )
    rng = CounterRng(0, 0, np.arange(400))
    single_tokens, whole_words = (
        s.select(batch, VOCABULARY, rng, 0.0).positions
        for s in (TokenSelection(), WholeWordSelection())
    )
    differs = (single_tokens != whole_words).any(1)
    for progress in (0.0, 0.25, 1.0):
        selected = selection.select(batch, VOCABULARY, rng, progress).positions
        whole = (selected == whole_words).all(1)
        assert (whole | (selected == single_tokens).all(1)).all()
        assert whole[differs].mean() == pytest.approx(progress, abs=0.08)


def test_independent_tokens() -> None:
    batch = batch_of_words(*[[-1, *range(254), -1]] * 400)
    selection = TokenSelection(independent=True)
    selected = selection.select(batch, VOCABULARY, CounterRng(1, 0, np.arange(400)), 0.0)
    counts = selected.weights.sum(axis=1)
    assert counts.mean() == pytest.approx(0.15 * 254, rel=0.02)
    assert counts.std() == pytest.approx((0.15 * 0.85 * 254) ** 0.5, rel=0.1)
    assert selected.positions.shape == (400, selection.num_slots(256))
    assert counts.max() < selection.num_slots(256) < 70
    by_position = np.bincount(selected.positions[selected.weights > 0], minlength=256)
    assert by_position[[0, 255]].tolist() == [0, 0]
    assert by_position[1:255].std() == pytest.approx((400 * 0.15 * 0.85) ** 0.5, rel=0.15)
    with pytest.raises(ValueError, match="set independent to false"):
        TokenSelection(independent=True, rarity=0.5)
