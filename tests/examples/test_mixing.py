"""Rows in two vocabularies are the same text."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.errors import UserError
from bertwright.examples.assembly import Assembly
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.mixing import Mixing
from bertwright.randomness import Draw
from bertwright.text.tokenizers import Specials
from recipes_at_toy_size import SPECIALS, VOCABULARY, ToyText

FIRST = 1000
"""Pieces of the first vocabulary; that of a word is the sum of those of the second."""
KNOWN = Specials(pad=9, unknown=8, start=7, end=6, mask=5)

ASSEMBLIES = [
    {"kind": "packed", "length": 24},
    {"kind": "packed", "length": 24, "isolated": False},
    {"kind": "full-sentences", "length": 24},
    {"kind": "segment-pair", "length": 24},
]


def rows_of(choice: dict[str, Any], number: int = 6) -> Rows:
    assembly = Assembly.choose(choice)
    source = assembly.plan(cast(Any, ToyText()), SPECIALS, 0)
    index = np.arange(min(number, source.num_rows))
    return source.rows(index, np.zeros_like(index))


def said(word: tuple[int, ...]) -> tuple[int, ...] | None:
    """One piece for a word, none for one that is even."""
    return (100 + sum(word),) if sum(word) % 2 else None


def mixed(rows: Rows, share: float, recut: Any = said, seed: int = 0) -> Rows:
    mixing = Mixing(share, recut, FIRST, KNOWN, SPECIALS)
    return mixing(rows, Draw(seed, 0, np.arange(len(rows.pieces))))


def words_of(rows: Rows, row: int) -> list[tuple[int, ...]]:
    """The pieces of every word and of every special place that is real, in order."""
    found: list[list[int]] = []
    word, before = rows.coordinates.word[row], None
    for place in np.flatnonzero(rows.real[row]):
        if word[place] < 0 or word[place] != before:
            found.append([])
        found[-1].append(int(rows.pieces[row, place]))
        before = word[place]
    return [tuple(each) for each in found]


@pytest.mark.parametrize("choice", ASSEMBLIES, ids=lambda choice: choice["kind"])
def test_all_words_stay_with_a_share_of_one(choice: dict[str, Any]) -> None:
    rows = rows_of(choice)
    found = mixed(rows, 1.0)
    text = ~rows.special
    assert np.array_equal(found.pieces[text], rows.pieces[text] + FIRST)
    renamed = {0: 9, 1: 8, 2: 7, 3: 6, 4: 5}
    assert found.pieces[~text].tolist() == [renamed[piece] for piece in rows.pieces[~text]]
    assert np.array_equal(found.special, rows.special)
    for name, values in rows.coordinates.present().items():
        own, real = getattr(found.coordinates, name), rows.real
        assert np.array_equal(own[real], values[real]), name
    assert np.array_equal(found.real, rows.real)


@pytest.mark.parametrize("choice", ASSEMBLIES, ids=lambda choice: choice["kind"])
@given(share=st.floats(0, 1), seed=st.integers(0, 99))
def test_a_word_is_what_it_was_in_one_of_both(
    choice: dict[str, Any], share: float, seed: int
) -> None:
    rows = rows_of(choice)
    found = mixed(rows, share, seed=seed)
    own, text = found.coordinates, rows.coordinates
    for row in range(len(rows.pieces)):
        before, after = words_of(rows, row), words_of(found, row)
        assert len(before) == len(after)
        for first, second in zip(before, after, strict=True):
            anew = said(first)
            stays = tuple(FIRST + piece for piece in first)
            special = (9 - first[0],) if first[0] < 5 else None
            assert second in (anew, stays, special)
            assert anew is not None or second != anew
        real, there = found.real[row], rows.real[row]
        assert not real[int(real.sum()) :].any()
        for name in ("segment", "document", "sentence"):
            values, known = getattr(own, name), getattr(text, name)
            if known is not None:
                assert set(values[row][real]) <= set(known[row][there])
        if own.position is not None:
            for document in set(own.document[row][real]):
                inside = own.position[row][own.document[row] == document]
                assert inside.tolist() == list(range(len(inside)))


def test_the_share_is_that_of_words() -> None:
    rows = rows_of({"kind": "packed", "length": 24}, 40)
    found = mixed(rows, 0.3, lambda word: (1,))
    text = ~found.special
    words = sum(int(own.max()) + 1 for own in rows.coordinates.word)
    anew = int((found.pieces[text] == 1).sum())
    assert abs(1 - anew / words - 0.3) < 0.05


def test_what_does_not_fit_is_cut_off() -> None:
    rows = rows_of({"kind": "packed", "length": 24})
    found = mixed(rows, 0.0, lambda word: (1, 2, 3, 4, 5))
    assert found.pieces.shape == rows.pieces.shape
    assert found.real.all()


def test_each_row_is_mixed_by_itself() -> None:
    rows = rows_of({"kind": "packed", "length": 24})
    whole = mixed(rows, 0.5)
    part = Rows(rows.pieces[2:], Coordinates(word=rows.coordinates.word[2:]), rows.special[2:])
    draw = Draw(0, 0, np.arange(2, len(rows.pieces)))
    alone = Mixing(0.5, said, FIRST, KNOWN, SPECIALS)(part, draw)
    assert np.array_equal(alone.pieces, whole.pieces[2:])


def test_rows_without_words_are_refused() -> None:
    pieces = np.full((1, 8), VOCABULARY - 1, np.int32)
    with pytest.raises(UserError, match="know where words begin"):
        mixed(Rows(pieces, Coordinates(), np.zeros((1, 8), np.bool_)), 0.5)
