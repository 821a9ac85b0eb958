"""Phrases are chosen whole, or not at all."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numbered_text import SPECIALS, NumberedSplit, documents

from bertwright.errors import UserError
from bertwright.examples.assembly import DocSentences, Packed, SegmentPair
from bertwright.examples.selection import Entities, Phrases
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw
from bertwright.text.shards import Stretches

VOCABULARY = Vocabulary(10_000, SPECIALS)
ASSEMBLIES = {
    "packed": Packed(length=16),
    "sentences": DocSentences(length=16),
    "pairs": SegmentPair(length=16),
}


def annotated(text: Any) -> NumberedSplit:
    """Every second and third word of a document is a phrase, its first one a name."""
    split = NumberedSplit.of(text)
    starts = split.word_starts[:-1]
    document = np.searchsorted(split.document_starts, starts, side="right") - 1
    within = np.arange(len(starts)) - np.searchsorted(document, document)
    stops = split.word_starts[1:]
    first = np.flatnonzero((within % 3 == 1) & np.append(document[1:] == document[:-1], False))
    split.phrases = Stretches(starts[first], stops[first + 1])
    split.entities = Stretches(starts[within == 0], stops[within == 0])
    return split


@given(documents, some.sampled_from(sorted(ASSEMBLIES)), some.floats(0.05, 0.6))
def test_a_phrase_is_chosen_whole_unless_the_budget_would_be_missed_by_more_than_a_tenth(
    text: Any, name: str, rate: float
) -> None:
    split = annotated([*text, [[2] * 20] * 3])
    source = ASSEMBLIES[name].plan(split, SPECIALS, 0)  # type: ignore[arg-type]
    index = np.arange(min(source.num_rows, 8))
    rows = source.rows(index, 0)
    draw = Draw(0, np.zeros_like(index), index)
    chosen = Phrases(rate=rate).select(rows, VOCABULARY, draw, 0.0)
    known, word = rows.coordinates.phrase, rows.coordinates.word
    assert known is not None
    assert word is not None
    for row in range(len(index)):
        where = set(chosen.where[row][chosen.weight[row] > 0].tolist())
        assert len(where) <= max(1, round(rate * int(rows.real[row].sum())))
        assert not any(rows.special[row, place] for place in where)
        units = [
            set(part)
            for number in set(known[row].tolist()) - {-1}
            for part in _runs(np.flatnonzero(known[row] == number))
        ]
        units += [
            set(np.flatnonzero((word[row] == number) & (known[row] < 0)).tolist())
            for number in set(word[row].tolist()) - {-1}
        ]
        budget = max(1, round(rate * int(rows.real[row].sum())))
        num_text = int((~rows.special[row]).sum())
        parts = [unit for unit in units if not unit <= where and unit & where]
        if not parts:
            assert len(where) >= min(0.9 * budget, num_text)
            continue
        whole = sum(len(unit) for unit in units if unit <= where)
        words = [set(np.flatnonzero(word[row] == number).tolist()) for number in set(word[row])]
        if any(not own <= where and own & where for own in words):
            assert len(where) == min(budget, num_text)
        assert len(where) >= min(0.9 * budget, num_text)
        assert whole < 0.9 * budget
    source_positions = rows.pieces.astype(np.int64) - 100
    expected = np.where(rows.special, -1, split.phrases.at(np.maximum(source_positions, 0)))  # type: ignore[union-attr]
    assert np.array_equal(known, expected)


def _runs(places: Any) -> list[list[int]]:
    """Neighbours together: both texts of a pair may hold a part of one phrase."""
    return [part.tolist() for part in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)]


def test_phrases_and_words_are_chosen_alike() -> None:
    """A phrase of two words is taken about as often as a word: less, where the budget ends."""
    split = annotated([[[1] * 21]] * 60)
    source = DocSentences(length=23).plan(split, SPECIALS, 0)  # type: ignore[arg-type]
    index = np.arange(source.num_rows)
    counts, selection = np.zeros(23), Phrases(rate=0.3)
    for epoch in range(40):
        rows = source.rows(index, epoch)
        chosen = selection.select(rows, VOCABULARY, Draw(0, np.full_like(index, epoch), index), 0.0)
        for row in range(len(index)):
            counts[chosen.where[row][chosen.weight[row] > 0]] += 1
    share = counts[1:22] / (40 * len(index))
    assert share[1::3] == pytest.approx(share[2::3], abs=1e-9)
    assert share[1::3].mean() == pytest.approx(share[0::3].mean(), rel=0.25)


def test_entities_are_others_than_phrases() -> None:
    split = annotated([[[2, 1, 1]] * 8])
    rows = DocSentences(length=34).plan(split, SPECIALS, 0).rows(np.arange(1), 0)  # type: ignore[arg-type]
    index = np.zeros(1, np.int64)
    units = [kind()._levels(rows)[0] for kind in (Phrases, Entities)]
    assert units[0].max() < units[1].max()
    assert Entities().select(rows, VOCABULARY, Draw(0, index, index), 0.0).weight.sum() > 0


def test_text_that_is_not_annotated_is_refused() -> None:
    rows = Packed(length=8).plan(NumberedSplit.of([[[1] * 20]]), SPECIALS, 0).rows(np.arange(1), 0)  # type: ignore[arg-type]
    index = np.zeros(1, np.int64)
    with pytest.raises(UserError, match="--phrases FILE"):
        Phrases().select(rows, VOCABULARY, Draw(0, index, index), 0.0)
