"""Parts of a text change places, and what is asked for says how."""

from itertools import permutations
from math import factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numbered_text import FIRST_PIECE, SPECIALS, NumberedSplit, documents

from bertwright.errors import UserError
from bertwright.examples.assembly import DocSentences, SegmentPair
from bertwright.examples.coordinates import RELATIONS, Rows
from bertwright.examples.reordering import num_orders, reorder
from bertwright.randomness import Draw


def rows_of(text: Any, kind: type = DocSentences, epoch: int = 0) -> tuple[Rows, Draw]:
    source = kind(length=24).plan(NumberedSplit.of(text), SPECIALS, 0)
    index = np.arange(source.num_rows)
    return source.rows(index, epoch), Draw(0, np.full_like(index, epoch), index)


def test_there_are_nine_orders_of_up_to_three_parts() -> None:
    assert [num_orders(most) for most in (1, 2, 3, 4)] == [1, 3, 9, 33]


@given(documents, some.integers(2, 4), some.integers(0, 20))
def test_the_answer_puts_the_parts_back(text: Any, most: int, epoch: int) -> None:
    rows, draw = rows_of(text, SegmentPair, epoch)
    shown, question = reorder(rows, most, draw)
    assert question.where.tolist() == [24 * row for row in range(len(rows.pieces))]
    assert (question.target < num_orders(most)).all()
    for row, target in enumerate(question.target.tolist()):
        number = next(n for n in range(1, most + 1) if target < num_orders(n))
        order = list(permutations(range(number)))[target - num_orders(number - 1)]
        after = _first_text(shown, row)
        before = _first_text(rows, row)
        breaks = np.flatnonzero(np.diff(after) != 1) + 1
        assert sorted(after.tolist()) == before.tolist()
        assert len(breaks) < number or number == 1
        lengths = _lengths(before, after, order)
        assert lengths is not None
    same = rows.pieces.copy()
    assert (np.sort(shown.pieces, axis=1) == np.sort(same, axis=1)).all()


def _first_text(rows: Rows, row: int) -> Any:
    end = np.flatnonzero(rows.special[row, 1:])[0] + 1
    return rows.pieces[row, 1:end].astype(np.int64)


def _lengths(before: Any, after: Any, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Lengths of parts that this order makes of the text what is seen, if there are such."""
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


def test_words_and_sentences_move_with_their_pieces() -> None:
    rows, draw = rows_of([[[1, 2], [3], [2, 2], [1]]] * 40)
    shown, _ = reorder(rows, 3, draw)
    for row in range(len(rows.pieces)):
        there = dict(
            zip(rows.pieces[row].tolist(), rows.coordinates.word[row].tolist(), strict=True)
        )  # type: ignore[index]
        text = ~rows.special[row]
        here = shown.coordinates.word[row][text].tolist()  # type: ignore[index]
        assert here == [there[piece] for piece in shown.pieces[row][text].tolist()]
    assert (shown.pieces != rows.pieces).any()


def test_all_orders_come_and_parts_are_equally_often_one_two_and_three() -> None:
    rows, draw = rows_of([[[1], [1], [1], [1]]] * 900)
    _, question = reorder(rows, 3, draw)
    counts = np.bincount(question.target, minlength=9) / len(question.target)
    expected = [1 / 3] + [1 / 6] * 2 + [1 / 3 / factorial(3)] * 6
    assert counts == pytest.approx(expected, abs=0.06)


def test_a_text_of_one_sentence_stays_as_it_is() -> None:
    rows, draw = rows_of([[[1] * 9]] * 10)
    shown, question = reorder(rows, 3, draw)
    assert np.array_equal(shown.pieces, rows.pieces)
    assert not question.target.any()


def test_the_second_text_may_be_another_one_of_the_same_document() -> None:
    text = [[[1] * 4] * 12] * 6
    seen = set()
    split = NumberedSplit.of(text)
    second = {"next": 0.4, "same-document": 0.4, "random": 0.2}
    source = SegmentPair(length=19, second=second).plan(split, SPECIALS, 0)  # type: ignore[arg-type]
    index = np.arange(source.num_rows)
    for epoch in range(20):
        rows = source.rows(index, epoch)
        assert rows.relation is not None
        for row, relation in enumerate(rows.relation.tolist()):
            segment = rows.coordinates.segment[row]  # type: ignore[index]
            a, b = (
                rows.pieces[row][(segment == n) & ~rows.special[row]].astype(int) - FIRST_PIECE
                for n in (0, 1)
            )
            documents = np.searchsorted(split.document_starts, [a[0], b[0]], side="right")
            name = RELATIONS[relation]
            seen.add(name)
            assert (documents[0] == documents[1]) == (name != "random")
            if name == "next":
                assert 0 < b[0] - a[-1] <= 16
            if name == "same-document":
                assert not set(a) & set(b)
                assert b[0] > a[-1] + 1 or b[-1] < a[0]
    assert seen == set(second)


def test_a_document_of_one_chunk_has_nothing_elsewhere() -> None:
    second = {"next": 0.5, "same-document": 0.5}
    source = SegmentPair(length=24, second=second, short=0.0).plan(  # type: ignore[arg-type]
        NumberedSplit.of([[[2], [3], [2]]] * 9), SPECIALS, 0
    )
    rows = source.rows(np.arange(source.num_rows), 0)
    assert {RELATIONS[n] for n in rows.relation.tolist()} == {"next", "random"}  # type: ignore[union-attr]


def test_rows_must_know_their_sentences() -> None:
    rows, draw = rows_of([[[1], [2]]] * 9)
    from dataclasses import replace

    bare = replace(rows, coordinates=replace(rows.coordinates, sentence=None))
    with pytest.raises(UserError, match="where sentences begin"):
        reorder(bare, 3, draw)
