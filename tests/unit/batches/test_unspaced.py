"""Text without spaces: every sequence is masked at the masking rate."""

from typing import Any

import numpy as np
import pytest

from bertwright.batches.masking import (
    MaskSelection,
    NGramSelection,
    SpanSelection,
    WholeWordSelection,
)
from bertwright.batches.masking.selection import is_unspaced
from bertwright.batches.noising import Infilling, Sentinels
from bertwright.batches.noising.noising import Noising
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from numbered_text import SPECIALS

NUM_SEQUENCES = 200
LENGTHS = {
    "one word": [126],
    "lines of DNA": [52, 60, 14],
    "phrases of Thai": [1, 17, 9, 24, 12, 1, 15, 8, 19, 14, 6],
    "a long word and short ones": [90, *[1] * 36],
    "ideographs": [1] * 126,
    "a sentence of one word": [12],
    "a sentence of two words": [8, 12],
}
"""Tokens of the words of a sequence."""

BUILT_IN_KINDS = [
    k for k, c in MaskSelection.kinds().items() if c.__module__.startswith("bertwright.")
]


def batch_of_words(sizes: list[int], length: int = 128) -> SequenceBatch:
    """Return equal sequences of words of these lengths; the first is a phrase and an entity."""
    word_ids = np.full(length, -1, np.int32)
    word_ids[1 : 1 + sum(sizes)] = np.repeat(np.arange(len(sizes)), sizes)
    all_word_ids = np.tile(word_ids, (NUM_SEQUENCES, 1))
    document = np.where(np.arange(length) < sum(sizes) + 2, 0, -1).astype(np.int32)
    unit_ids = np.where(all_word_ids == 0, 0, -1).astype(np.int32)
    token_info = TokenInfoArrays(
        word_ids=all_word_ids,
        sentence_ids=np.where(all_word_ids < 0, -1, 0).astype(np.int32),
        document_ids=np.tile(document, (NUM_SEQUENCES, 1)),
        phrase_ids=unit_ids,
        entity_ids=unit_ids,
    )
    return SequenceBatch(
        np.where(all_word_ids < 0, 0, 100 + all_word_ids).astype(np.int32),
        token_info,
        all_word_ids < 0,
    )


def vocabulary() -> Vocabulary:
    return Vocabulary(500, SPECIALS, np.ones(500, np.int64))


@pytest.mark.parametrize("sizes", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", BUILT_IN_KINDS)
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_achieved_masking_rate(kind: str, sizes: list[int], rate: float) -> None:
    batch = batch_of_words(sizes)
    selection = MaskSelection.parse({"kind": kind, "masking_rate": rate})
    weights = selection.select(
        batch, vocabulary(), CounterRng(0, 0, np.arange(NUM_SEQUENCES)), 0.0
    ).weights
    budget = max(1, round(rate * (sum(sizes) + 2)))
    assert (weights.sum(axis=1) >= 0.9 * budget).all()
    assert (weights.sum(axis=1) <= budget).all()


@pytest.mark.parametrize("sizes", [LENGTHS["one word"], LENGTHS["lines of DNA"]])
@pytest.mark.parametrize(
    "selection", [WholeWordSelection(), SpanSelection(), NGramSelection()], ids=lambda s: s.kind
)
def test_all_tokens_of_a_long_word_are_masked_sometimes(
    selection: MaskSelection, sizes: list[int]
) -> None:
    selected = selection.select(
        batch_of_words(sizes), vocabulary(), CounterRng(0, 0, np.arange(NUM_SEQUENCES)), 0.0
    )
    masked = np.zeros((NUM_SEQUENCES, 128))
    np.put_along_axis(masked, selected.positions, selected.weights, axis=1)
    assert masked.mean(axis=0)[2:126].min() > 0.03
    assert len(np.unique(masked, axis=0)) > 0.9 * NUM_SEQUENCES


@pytest.mark.parametrize("text", ["one word", "lines of DNA", "phrases of Thai", "ideographs"])
@pytest.mark.parametrize("noising", [Infilling(), Sentinels()], ids=lambda n: n.kind)
def test_noising_rate(noising: Any, text: str) -> None:
    assert isinstance(noising, Noising)
    rate = 0.3 if isinstance(noising, Infilling) else 0.15
    batch = batch_of_words(LENGTHS[text])
    _, targets = noising.add_noise(
        batch, vocabulary(), CounterRng(0, 0, np.arange(NUM_SEQUENCES)), 0.0
    )
    assert targets.masked_counts is not None
    num_masked, num_real = targets.masked_counts
    assert num_masked / num_real == pytest.approx(rate, rel=0.1)


def test_spans_count_tokens_in_unspaced_text() -> None:
    """Span lengths are drawn in tokens instead of words."""
    batch = batch_of_words([126])
    spans = SpanSelection(merged=False).select(
        batch, vocabulary(), CounterRng(0, 0, np.arange(NUM_SEQUENCES)), 0.0
    )
    offsets = np.arange(NUM_SEQUENCES)[:, None] * 1000
    sizes = np.unique((offsets + spans.unit_ids)[spans.weights > 0], return_counts=True)[1]
    assert 3.0 < sizes.mean() < 3.8


def test_is_unspaced() -> None:
    for sizes, expected in (([126], True), ([11] * 11, True), ([10] * 12, False), ([1], False)):
        batch = batch_of_words(sizes)
        assert batch.token_info.word_ids is not None
        is_word_start = np.ones(batch.is_special.shape, np.bool_)
        is_word_start[:, 1:] = batch.token_info.word_ids[:, 1:] != batch.token_info.word_ids[:, :-1]
        assert (is_unspaced(is_word_start, batch.is_special) == expected).all()


def test_words_of_spaced_text_stay_whole() -> None:
    """Single tokens fill only budgets missed by more than a tenth."""
    batch = batch_of_words([3, 1, 2, 1, 1, 4] * 10)
    for selection in (WholeWordSelection(), NGramSelection()):
        selected = selection.select(
            batch, vocabulary(), CounterRng(0, 0, np.arange(NUM_SEQUENCES)), 0.0
        )
        assert (selected.unit_ids[selected.weights > 0] < 128).all()
