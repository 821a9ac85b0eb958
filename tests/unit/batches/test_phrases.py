"""Phrases are selected whole, or not at all."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from bertwright.batches.formats import DocSentences, Packed, SegmentPair
from bertwright.batches.masking import EntitySelection, PhraseSelection
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.data.shards.dataset import TokenSpans
from numbered_text import SPECIALS, NumberedSplit, documents

VOCABULARY = Vocabulary(10_000, SPECIALS)
FORMATS = {
    "packed": Packed(length=16),
    "sentences": DocSentences(length=16),
    "pairs": SegmentPair(length=16),
}


def annotate(text: Any) -> NumberedSplit:
    """Return a split with phrases of two words and entities of one."""
    split = NumberedSplit.of(text)
    starts = split.word_starts[:-1]
    document = np.searchsorted(split.document_starts, starts, side="right") - 1
    word_index = np.arange(len(starts)) - np.searchsorted(document, document)
    stops = split.word_starts[1:]
    first = np.flatnonzero((word_index % 3 == 1) & np.append(document[1:] == document[:-1], False))
    split.phrases = TokenSpans(starts[first], stops[first + 1])
    split.entities = TokenSpans(starts[word_index == 0], stops[word_index == 0])
    return split


@given(documents, some.sampled_from(sorted(FORMATS)), some.floats(0.05, 0.6))
def test_phrases_are_selected_whole(text: Any, name: str, rate: float) -> None:
    split = annotate([*text, [[2] * 20] * 3])
    source = FORMATS[name].plan(split, SPECIALS, 0)  # type: ignore[arg-type]
    index = np.arange(min(source.num_sequences, 8))
    batch = source.sequences(index, 0)
    rng = CounterRng(0, np.zeros_like(index), index)
    selected = PhraseSelection(masking_rate=rate).select(batch, VOCABULARY, rng, 0.0)
    phrase_ids, word_ids = batch.token_info.phrase_ids, batch.token_info.word_ids
    assert phrase_ids is not None
    assert word_ids is not None
    for i in range(len(index)):
        selected_set = set(selected.positions[i][selected.weights[i] > 0].tolist())
        assert len(selected_set) <= max(1, round(rate * int(batch.is_real[i].sum())))
        assert not any(batch.is_special[i, position] for position in selected_set)
        units = [
            set(part)
            for number in set(phrase_ids[i].tolist()) - {-1}
            for part in _split_runs(np.flatnonzero(phrase_ids[i] == number))
        ]
        units += [
            set(np.flatnonzero((word_ids[i] == number) & (phrase_ids[i] < 0)).tolist())
            for number in set(word_ids[i].tolist()) - {-1}
        ]
        budget = max(1, round(rate * int(batch.is_real[i].sum())))
        num_text = int((~batch.is_special[i]).sum())
        parts = [unit for unit in units if not unit <= selected_set and unit & selected_set]
        if not parts:
            assert len(selected_set) >= min(0.9 * budget, num_text)
            continue
        num_whole = sum(len(unit) for unit in units if unit <= selected_set)
        words = [set(np.flatnonzero(word_ids[i] == number).tolist()) for number in set(word_ids[i])]
        if any(
            not word_positions <= selected_set and word_positions & selected_set
            for word_positions in words
        ):
            assert len(selected_set) == min(budget, num_text)
        assert len(selected_set) >= min(0.9 * budget, num_text)
        assert num_whole < 0.9 * budget
    source_positions = batch.token_ids.astype(np.int64) - 100
    expected = np.where(
        batch.is_special, -1, split.phrases.index_at(np.maximum(source_positions, 0))
    )  # type: ignore[union-attr]
    assert np.array_equal(phrase_ids, expected)


def _split_runs(positions: Any) -> list[list[int]]:
    """Split into runs: both texts of a pair may have a part of one phrase."""
    return [
        part.tolist() for part in np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    ]


def test_phrases_and_words_are_equally_likely() -> None:
    """A phrase of two words is selected about as often as a word."""
    split = annotate([[[1] * 21]] * 60)
    source = DocSentences(length=23).plan(split, SPECIALS, 0)  # type: ignore[arg-type]
    index = np.arange(source.num_sequences)
    counts, selection = np.zeros(23), PhraseSelection(masking_rate=0.3)
    for epoch in range(40):
        batch = source.sequences(index, epoch)
        selected = selection.select(
            batch, VOCABULARY, CounterRng(0, np.full_like(index, epoch), index), 0.0
        )
        for i in range(len(index)):
            counts[selected.positions[i][selected.weights[i] > 0]] += 1
    frequencies = counts[1:22] / (40 * len(index))
    assert frequencies[1::3] == pytest.approx(frequencies[2::3], abs=1e-9)
    assert frequencies[1::3].mean() == pytest.approx(frequencies[0::3].mean(), rel=0.25)


def test_entities_differ_from_phrases() -> None:
    split = annotate([[[2, 1, 1]] * 8])
    batch = DocSentences(length=34).plan(split, SPECIALS, 0).sequences(np.arange(1), 0)  # type: ignore[arg-type]
    index = np.zeros(1, np.int64)
    units = [kind()._unit_levels(batch)[0] for kind in (PhraseSelection, EntitySelection)]
    assert units[0].max() < units[1].max()
    assert (
        EntitySelection().select(batch, VOCABULARY, CounterRng(0, index, index), 0.0).weights.sum()
        > 0
    )


def test_text_without_annotations_is_an_error() -> None:
    batch = (
        Packed(length=8)
        .plan(NumberedSplit.of([[[1] * 20]]), SPECIALS, 0)
        .sequences(np.arange(1), 0)
    )  # type: ignore[arg-type]
    index = np.zeros(1, np.int64)
    with pytest.raises(UserError, match="--phrases FILE"):
        PhraseSelection().select(batch, VOCABULARY, CounterRng(0, index, index), 0.0)
