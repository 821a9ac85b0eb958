"""Spans and n-grams: lengths, positions and units."""

from dataclasses import replace

import numpy as np
import pytest

from bertwright.batches.masking import (
    NGramSelection,
    PartitionSelection,
    SpacedSpanSelection,
    SpanSelection,
)
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from numbered_text import SPECIALS

VOCABULARY = Vocabulary(50, SPECIALS)


def batch_of_words(word, num_sequences):
    """Return equal sequences of word ids; -1 is special."""
    words = np.tile(np.array(word, np.int32), (num_sequences, 1))
    return SequenceBatch(np.zeros_like(words), TokenInfoArrays(word_ids=words), words < 0)


def select(selection, batch, rate):
    rng = CounterRng(3, 0, np.arange(len(batch.token_ids)))
    return selection.copy_with("selection", masking_rate=rate).select(batch, VOCABULARY, rng, 0.0)


def test_length_distribution_is_renormalised():
    lengths = np.arange(1, 11)
    assert SpanSelection().length_probabilities @ lengths == pytest.approx(3.797, abs=1e-3)
    assert NGramSelection().length_probabilities.tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11])


@pytest.mark.parametrize(
    "selection", [SpanSelection(), NGramSelection(), SpanSelection(law="uniform", longest=3)]
)
def test_lengths_follow_the_distribution(selection):
    selected = select(selection, batch_of_words([-1, *range(4000), -1], 80), 0.02)
    offsets = np.arange(80)[:, None] * 5000
    sizes = np.unique(offsets + selected.unit_ids, return_counts=True)[1]
    frequencies = np.bincount(sizes, minlength=31)[1 : selection.longest + 1] / len(sizes)
    assert frequencies == pytest.approx(selection.length_probabilities, abs=0.04)


@pytest.mark.parametrize(
    "selection", [SpanSelection(), NGramSelection(), SpacedSpanSelection(), PartitionSelection()]
)
def test_nothing_of_a_sequence_without_text_is_selected(selection):
    selected = select(selection, batch_of_words([-1] * 12, 3), 0.5)
    assert (selected.unit_ids < 0).all()
    assert not selected.weights.any()


def test_spans_start_and_n_grams_end_at_words():
    word = [-1, 0, 0, 0, 1, 2, 2, 3, -1, 4, 4, 5, 6, 6, 6, 7, *range(8, 20), -1]
    begins = {1, 4, 5, 7, 9, 11, 12, *range(15, 28)}
    batch = batch_of_words(word, 500)
    for selection in (SpanSelection(), NGramSelection()):
        selected = select(selection, batch, 0.3)
        for positions, weight, unit_ids in zip(
            selected.positions, selected.weights, selected.unit_ids, strict=True
        ):
            masked = positions[weight > 0]
            assert not {0, 8, 28} & set(masked.tolist())
            assert set(unit_ids[weight > 0].tolist()) <= begins
            if isinstance(selection, NGramSelection):
                words = np.array(word)
                whole = np.flatnonzero(np.isin(words, words[masked]))
                assert whole.tolist() == masked.tolist()


def test_touching_spans_are_merged():
    batch = batch_of_words([-1, *range(20), -1], 400)
    selected = select(SpanSelection(longest=2), batch, 0.6)
    for positions, weight, unit_ids in zip(
        selected.positions, selected.weights, selected.unit_ids, strict=True
    ):
        masked = positions[weight > 0]
        begins = np.concatenate([[True], np.diff(masked) > 1])
        assert unit_ids[weight > 0].tolist() == masked[begins][np.cumsum(begins) - 1].tolist()


def test_a_masked_first_token_begins_a_span():
    batch = batch_of_words([*range(20), -1], 400)
    selected = select(SpanSelection(longest=2), batch, 0.6)
    is_first = (selected.positions == 0) & (selected.weights > 0)
    assert is_first.any()
    assert (selected.unit_ids[is_first] == 0).all()


@pytest.mark.parametrize("of", ["words", "tokens"])
def test_unmerged_spans_keep_their_lengths(of):
    batch = batch_of_words([-1, *range(20), -1], 400)
    separate, merged = (
        select(SpanSelection(law="uniform", longest=3, of=of, merged=is_merged), batch, 0.6)
        for is_merged in (False, True)
    )
    np.testing.assert_array_equal(separate.positions, merged.positions)
    assert (separate.weights == 1).all()
    offsets = np.arange(400)[:, None] * 100
    longest, longest_run = (
        np.unique(offsets + c.unit_ids, return_counts=True)[1].max() for c in (separate, merged)
    )
    assert longest == 3 < longest_run


def spaced_spans(words, num_sequences=400, is_backward=None, **settings):
    """Select spans in sequences of words and return the mask (B, L) of the selected tokens."""
    selection = SpacedSpanSelection(**settings)
    batch = batch_of_words(words, num_sequences)
    if is_backward is not None:
        flags = np.full(batch.token_ids.shape, is_backward)
        batch = replace(batch, token_info=replace(batch.token_info, is_backward=flags))
    selected = select(selection, batch, 1 / 6)
    mask = np.zeros(batch.token_ids.shape, bool)
    row, slot = np.nonzero(selected.weights)
    mask[row, selected.positions[row, slot]] = True
    return mask, selected


def test_spaced_spans_follow_the_released_code():
    """Compare lengths, gaps and starts with the loop over one sequence of Yang et al. 2019."""
    rng, length, starts_per_word = np.random.default_rng(0), 256, 2
    words = [n // starts_per_word for n in range(length)]
    expected = []
    for _ in range(2000):
        mask, position, goal = np.zeros(length, bool), 0, round(length / 6)
        while position < length and mask.sum() < goal:
            n = min(
                rng.choice(5, p=1 / np.arange(1, 6) / sum(1 / np.arange(1, 6))) + 1,
                goal - mask.sum(),
            )
            before = rng.integers(6 * n)
            begin = position + before
            begin += begin % starts_per_word
            if begin + n >= length:
                break
            mask[begin : begin + n] = True
            position = begin + n + 6 * n - before
        while mask.sum() < goal:
            mask[rng.choice(np.flatnonzero(~mask))] = True
        expected.append(mask)
    mask, _ = spaced_spans(words, 2000)
    assert (mask.sum(axis=1) == round(length / 6)).all()
    # Tokens are selected about equally often everywhere, and in runs as long as the expected ones.
    for measure in (run_lengths, run_starts):
        ours, theirs = measure(mask), measure(np.array(expected))
        np.testing.assert_allclose(ours, theirs, atol=0.02)


def run_lengths(mask):
    """Return the fractions of runs of 1 to 6 selected tokens."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(int), axis=1)
    sizes = np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]
    return np.bincount(sizes, minlength=40)[1:7] / len(sizes)


def run_starts(mask):
    """Return the fraction of runs that start at a word, and of selected tokens by position."""
    starts = np.nonzero(np.diff(np.pad(mask, ((0, 0), (1, 0))).astype(int), axis=1) == 1)[1]
    by_position = mask.reshape(len(mask), 8, -1).mean(axis=(0, 2))
    return np.array([np.mean(starts % 2 == 0), *by_position])


def test_spaced_spans_of_parts_have_equal_budgets():
    words = [*range(44), -1, *range(50, 92), -1, -1]
    mask, _ = spaced_spans(words, parts=2)
    budget = round(len(words) / 6)
    assert (mask[:, :45].sum(axis=1) == budget - budget // 2).all()
    assert (mask[:, 45:].sum(axis=1) == budget // 2).all()
    assert not mask[:, np.array(words) < 0].any()


def test_spaced_spans_of_a_reversed_text_begin_at_its_words():
    words = [n // 3 for n in range(120)][::-1]
    _, selected = spaced_spans(words, is_backward=True, context=2)
    unit_ids = selected.unit_ids[selected.weights > 0]
    # Units are numbered in text order; single tokens, which fill the budget, are few.
    assert np.mean(unit_ids % 3 == 0) > 0.8
