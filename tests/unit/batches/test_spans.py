"""Spans and n-grams: lengths, positions and units."""

import numpy as np
import pytest

from bertwright.batches.masking import NGramSelection, SpanSelection
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
