"""Segments of a text are permuted, and the label is the order."""

from dataclasses import replace
from itertools import permutations
from math import factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from bertwright.batches.formats import DocSentences, SegmentPair
from bertwright.batches.token_info import RELATIONS, SequenceBatch
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.objectives.reordering import num_orders, reorder_segments
from numbered_text import FIRST_TOKEN, SPECIALS, NumberedSplit, documents


def format_batch(
    text: Any, kind: type = DocSentences, epoch: int = 0
) -> tuple[SequenceBatch, CounterRng]:
    source = kind(length=24).plan(NumberedSplit.of(text), SPECIALS, 0)
    index = np.arange(source.num_sequences)
    return source.sequences(index, epoch), CounterRng(0, np.full_like(index, epoch), index)


def test_number_of_orders() -> None:
    assert [num_orders(max_parts) for max_parts in (1, 2, 3, 4)] == [1, 3, 9, 33]


@given(documents, some.integers(2, 4), some.integers(0, 20))
def test_label_is_the_order_of_the_segments(text: Any, max_parts: int, epoch: int) -> None:
    batch, rng = format_batch(text, SegmentPair, epoch)
    reordered, targets = reorder_segments(batch, max_parts, rng)
    assert targets.positions.tolist() == [24 * i for i in range(len(batch.token_ids))]
    assert (targets.labels < num_orders(max_parts)).all()
    for i, target in enumerate(targets.labels.tolist()):
        number = next(n for n in range(1, max_parts + 1) if target < num_orders(n))
        order = list(permutations(range(number)))[target - num_orders(number - 1)]
        after = _first_text(reordered, i)
        before = _first_text(batch, i)
        breaks = np.flatnonzero(np.diff(after) != 1) + 1
        assert sorted(after.tolist()) == before.tolist()
        assert len(breaks) < number or number == 1
        lengths = _lengths(before, after, order)
        assert lengths is not None
    same = batch.token_ids.copy()
    assert (np.sort(reordered.token_ids, axis=1) == np.sort(same, axis=1)).all()


def _first_text(batch: SequenceBatch, i: int) -> Any:
    end = np.flatnonzero(batch.is_special[i, 1:])[0] + 1
    return batch.token_ids[i, 1:end].astype(np.int64)


def _lengths(before: Any, after: Any, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return segment boundaries for which this order yields the reordered text, if any."""
    parts = len(order)
    size = len(before)
    cuts = [()] if parts == 1 else [(a,) for a in range(1, size)]
    while parts > 1 and len(cuts[0]) < parts - 1:
        cuts = [(*c, b) for c in cuts for b in range(c[-1] + 1, size)]
    for cut in cuts:
        segments = np.split(before, cut)
        if np.concatenate([segments[n] for n in order]).tolist() == after.tolist():
            return cut
    return None


def test_words_move_with_their_tokens() -> None:
    batch, rng = format_batch([[[1, 2], [3], [2, 2], [1]]] * 40)
    reordered, _ = reorder_segments(batch, 3, rng)
    for i in range(len(batch.token_ids)):
        word_by_token = dict(
            zip(batch.token_ids[i].tolist(), batch.token_info.word_ids[i].tolist(), strict=True)
        )  # type: ignore[index]
        text = ~batch.is_special[i]
        moved_words = reordered.token_info.word_ids[i][text].tolist()  # type: ignore[index]
        assert moved_words == [
            word_by_token[token] for token in reordered.token_ids[i][text].tolist()
        ]
    assert (reordered.token_ids != batch.token_ids).any()


def test_numbers_of_segments_are_equally_frequent() -> None:
    batch, rng = format_batch([[[1], [1], [1], [1]]] * 900)
    _, targets = reorder_segments(batch, 3, rng)
    counts = np.bincount(targets.labels, minlength=9) / len(targets.labels)
    expected = [1 / 3] + [1 / 6] * 2 + [1 / 3 / factorial(3)] * 6
    assert counts == pytest.approx(expected, abs=0.06)


def test_segments_begin_at_any_sentence() -> None:
    batch, rng = format_batch([[[1], [1], [1], [1]]] * 2000)
    reordered, targets = reorder_segments(batch, 3, rng)
    is_swapped = targets.labels == 2  # two segments, the second one first
    first = reordered.token_ids[is_swapped, 1] - batch.token_ids[is_swapped, 1]
    counts = np.bincount(first, minlength=4) / is_swapped.sum()
    assert counts.tolist() == pytest.approx([0] + [1 / 3] * 3, abs=0.1)
    is_reversed = targets.labels == 8  # three segments from the last to the first
    moved = reordered.token_ids[is_reversed, 1:5] - batch.token_ids[is_reversed, 1:2]
    orders, numbers = np.unique(moved, axis=0, return_counts=True)
    assert orders.tolist() == [[2, 3, 1, 0], [3, 1, 2, 0], [3, 2, 0, 1]]
    assert (numbers / is_reversed.sum()).tolist() == pytest.approx([1 / 3] * 3, abs=0.12)


def test_single_sentence_is_unchanged() -> None:
    batch, rng = format_batch([[[1] * 9]] * 10)
    reordered, targets = reorder_segments(batch, 3, rng)
    assert np.array_equal(reordered.token_ids, batch.token_ids)
    assert not targets.labels.any()


def test_second_text_of_the_same_document() -> None:
    text = [[[1] * 4] * 12] * 6
    relations = set()
    split = NumberedSplit.of(text)
    second = {"next": 0.4, "same-document": 0.4, "random": 0.2}
    source = SegmentPair(length=19, second=second).plan(split, SPECIALS, 0)  # type: ignore[arg-type]
    index = np.arange(source.num_sequences)
    for epoch in range(20):
        batch = source.sequences(index, epoch)
        assert batch.relation is not None
        for i, relation in enumerate(batch.relation.tolist()):
            segment = batch.token_info.segment_ids[i]  # type: ignore[index]
            a, b = (
                batch.token_ids[i][(segment == n) & ~batch.is_special[i]].astype(int) - FIRST_TOKEN
                for n in (0, 1)
            )
            documents = np.searchsorted(split.document_starts, [a[0], b[0]], side="right")
            name = RELATIONS[relation]
            relations.add(name)
            assert (documents[0] == documents[1]) == (name != "random")
            if name == "next":
                assert 0 < b[0] - a[-1] <= 16
            if name == "same-document":
                assert not set(a) & set(b)
                assert b[0] > a[-1] + 1 or b[-1] < a[0]
    assert relations == set(second)


def test_single_chunk_has_no_other_text_in_its_document() -> None:
    second = {"next": 0.5, "same-document": 0.5}
    source = SegmentPair(length=24, second=second, short=0.0).plan(  # type: ignore[arg-type]
        NumberedSplit.of([[[2], [3], [2]]] * 9), SPECIALS, 0
    )
    batch = source.sequences(np.arange(source.num_sequences), 0)
    assert {RELATIONS[n] for n in batch.relation.tolist()} == {"next", "random"}  # type: ignore[union-attr]


def test_missing_sentence_boundaries_are_an_error() -> None:
    batch, rng = format_batch([[[1], [2]]] * 9)
    without_sentences = replace(batch, token_info=replace(batch.token_info, sentence_ids=None))
    with pytest.raises(UserError, match="sentence boundaries"):
        reorder_segments(without_sentences, 3, rng)
