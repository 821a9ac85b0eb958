"""Windows of histories: all of them are read, and the extra rows ask for the last item alone."""

from typing import Any, cast

import numpy as np
import pytest

from bertwright.examples.assembly import ItemHistory
from bertwright.examples.selection import Tokens
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw
from bertwright.text.tokenizers import Specials

SPECIALS = Specials(pad=0, unknown=1, start=2, end=3, mask=4)


class Users:
    """Histories of 1, 3, 8, 9 and 30 items, whose pieces count on."""

    name = "train"

    def __init__(self) -> None:
        self.document_starts = np.cumsum([0, 1, 3, 8, 9, 30])
        self.num_pieces = int(self.document_starts[-1])

    def gather(self, starts: Any, length: int) -> Any:
        at = starts[:, None] + np.arange(length)
        return (at + 5).astype(np.int32), np.zeros(at.shape, np.uint8)


def all_rows(**settings: Any) -> Any:
    source = ItemHistory(length=8, **settings).plan(cast(Any, Users()), SPECIALS, 0)
    return source.rows(np.arange(source.num_rows), 0)


def test_windows_go_back_from_the_end_and_reach_the_first_item() -> None:
    rows = all_rows(step=0.5, windows=1, last=0)
    first, count = rows.pieces[:, 0] - 5, rows.real.sum(axis=1)
    of_thirty = 21 + np.array([22, 18, 14, 10, 6, 2, 0])
    assert first.tolist() == [1, 4, 13, 12, *of_thirty.tolist()]
    assert count.tolist() == [3, *[8] * 10]
    for row, n in zip(rows.pieces, count, strict=True):
        assert np.array_equal(row[:n], row[0] + np.arange(n))
        assert (row[n:] == SPECIALS.pad).all()


def test_every_epoch_has_each_window_ten_times_and_the_last_one_more() -> None:
    rows = all_rows(windows=10, last=1)
    assert len(rows.pieces) == 10 * 11 + 4
    asked = ~rows.special[-4:]
    assert asked.sum(axis=1).tolist() == [1] * 4
    last = rows.pieces[-4:][asked] - 5
    assert last.tolist() == (Users().document_starts[2:] - 1).tolist()
    assert np.array_equal(~rows.special[:-4], rows.real[:-4])


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_rows_for_the_last_item_hide_nothing_else(rate: float) -> None:
    rows = all_rows(windows=0)
    index = np.arange(len(rows.pieces))
    vocabulary = Vocabulary(100, SPECIALS)
    chosen = Tokens(rate=rate).select(rows, vocabulary, Draw(0, np.zeros_like(index), index), 0.0)
    assert chosen.weight.sum(axis=1).tolist() == [1.0] * 4
    assert chosen.where[chosen.weight > 0].tolist() == [2, 7, 7, 7]


def test_held_out_histories_are_asked_for_their_last_item() -> None:
    chosen = ItemHistory(length=8, windows=10, last=0).evaluated
    assert (chosen.windows, chosen.last) == (0, 1)


def test_rows_there_must_be() -> None:
    with pytest.raises(ValueError, match="must not both be 0"):
        ItemHistory(windows=0, last=0)
