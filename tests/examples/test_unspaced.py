"""Text without spaces: something is masked in every sequence, at the rate that was asked."""

from typing import Any

import numpy as np
import pytest
from numbered_text import SPECIALS

from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.noising import Infilling, Sentinels
from bertwright.examples.noising.noising import Noising
from bertwright.examples.selection import NGrams, Selection, Spans, WholeWords
from bertwright.examples.selection.unspaced import unspaced
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

NUM_ROWS = 200
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

OURS = [k for k, c in Selection.kinds().items() if c.__module__.startswith("bertwright.")]


def rows_of(sizes: list[int], length: int = 128) -> Rows:
    """Equal sequences of words of so many tokens, in a sentence of their own each; the first word
    is a phrase and a name."""
    word = np.full(length, -1, np.int32)
    word[1 : 1 + sum(sizes)] = np.repeat(np.arange(len(sizes)), sizes)
    words = np.tile(word, (NUM_ROWS, 1))
    document = np.where(np.arange(length) < sum(sizes) + 2, 0, -1).astype(np.int32)
    named = np.where(words == 0, 0, -1).astype(np.int32)
    known = Coordinates(
        word=words,
        sentence=np.where(words < 0, -1, 0).astype(np.int32),
        document=np.tile(document, (NUM_ROWS, 1)),
        phrase=named,
        entity=named,
    )
    return Rows(np.where(words < 0, 0, 100 + words).astype(np.int32), known, words < 0)


def vocabulary() -> Vocabulary:
    return Vocabulary(500, SPECIALS, np.ones(500, np.int64))


@pytest.mark.parametrize("sizes", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_the_masking_rate_is_within_a_tenth_of_the_rate_asked(
    kind: str, sizes: list[int], rate: float
) -> None:
    rows = rows_of(sizes)
    selection = Selection.choose({"kind": kind, "rate": rate})
    weight = selection.select(rows, vocabulary(), Draw(0, 0, np.arange(NUM_ROWS)), 0.0).weight
    budget = max(1, round(rate * (sum(sizes) + 2)))
    assert (weight.sum(axis=1) >= 0.9 * budget).all()
    assert (weight.sum(axis=1) <= budget).all()


@pytest.mark.parametrize("sizes", [LENGTHS["one word"], LENGTHS["lines of DNA"]])
@pytest.mark.parametrize("selection", [WholeWords(), Spans(), NGrams()], ids=lambda s: s.kind)
def test_every_token_of_a_long_word_is_masked_now_and_then(
    selection: Selection, sizes: list[int]
) -> None:
    chosen = selection.select(rows_of(sizes), vocabulary(), Draw(0, 0, np.arange(NUM_ROWS)), 0.0)
    masked = np.zeros((NUM_ROWS, 128))
    np.put_along_axis(masked, chosen.where, chosen.weight, axis=1)
    assert masked.mean(axis=0)[2:126].min() > 0.03
    assert len(np.unique(masked, axis=0)) > 0.9 * NUM_ROWS


@pytest.mark.parametrize("text", ["one word", "lines of DNA", "phrases of Thai", "ideographs"])
@pytest.mark.parametrize("noising", [Infilling(), Sentinels()], ids=lambda n: n.kind)
def test_noising_masks_at_the_rate_asked(noising: Any, text: str) -> None:
    assert isinstance(noising, Noising)
    rate = 0.3 if isinstance(noising, Infilling) else 0.15
    rows = rows_of(LENGTHS[text])
    _, question = noising.noised(rows, vocabulary(), Draw(0, 0, np.arange(NUM_ROWS)), 0.0)
    assert question.hidden is not None
    num_masked, num_real = question.hidden
    assert num_masked / num_real == pytest.approx(rate, rel=0.1)


def test_runs_count_tokens_in_text_without_spaces() -> None:
    """Their lengths follow the law in tokens, as they do in words elsewhere."""
    rows = rows_of([126])
    spans = Spans(merged=False).select(rows, vocabulary(), Draw(0, 0, np.arange(NUM_ROWS)), 0.0)
    row = np.arange(NUM_ROWS)[:, None] * 1000
    sizes = np.unique((row + spans.unit)[spans.weight > 0], return_counts=True)[1]
    assert 3.0 < sizes.mean() < 3.8


def test_spaced_text_is_told_by_its_words() -> None:
    for sizes, expected in (([126], True), ([11] * 11, True), ([10] * 12, False), ([1], False)):
        rows = rows_of(sizes)
        assert rows.coordinates.word is not None
        begins = np.ones(rows.special.shape, np.bool_)
        begins[:, 1:] = rows.coordinates.word[:, 1:] != rows.coordinates.word[:, :-1]
        assert (unspaced(begins, rows.special) == expected).all()


def test_words_of_spaced_text_stay_whole() -> None:
    """Single tokens fill only budgets that would be missed by more than a tenth."""
    rows = rows_of([3, 1, 2, 1, 1, 4] * 10)
    for selection in (WholeWords(), NGrams()):
        chosen = selection.select(rows, vocabulary(), Draw(0, 0, np.arange(NUM_ROWS)), 0.0)
        assert (chosen.unit[chosen.weight > 0] < 128).all()
