"""Windows of item histories, and sequences that mask the last item only."""

from typing import Any, cast

import numpy as np
import pytest

from bertwright.batches.formats import ItemHistory
from bertwright.batches.masking import TokenSelection
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from bertwright.data.tokenization.tokenizer import SpecialTokens

SPECIALS = SpecialTokens(pad=0, unknown=1, start=2, end=3, mask=4)


class Users:
    """Histories of 1, 3, 8, 9 and 30 items, with consecutive token ids."""

    name = "train"

    def __init__(self) -> None:
        self.document_starts = np.cumsum([0, 1, 3, 8, 9, 30])
        self.num_tokens = int(self.document_starts[-1])

    def gather(self, starts: Any, length: int) -> Any:
        positions = starts[:, None] + np.arange(length)
        return (positions + 5).astype(np.int32), np.zeros(positions.shape, np.uint8)


def all_sequences(**settings: Any) -> Any:
    source = ItemHistory(length=8, **settings).plan(cast(Any, Users()), SPECIALS, 0)
    return source.sequences(np.arange(source.num_sequences), 0)


def test_windows_reach_back_to_the_first_item() -> None:
    batch = all_sequences(step=0.5, windows=1, last=0)
    first, lengths = batch.token_ids[:, 0] - 5, batch.is_real.sum(axis=1)
    of_thirty = 21 + np.array([22, 18, 14, 10, 6, 2, 0])
    assert first.tolist() == [1, 4, 13, 12, *of_thirty.tolist()]
    assert lengths.tolist() == [3, *[8] * 10]
    for row, n in zip(batch.token_ids, lengths, strict=True):
        assert np.array_equal(row[:n], row[0] + np.arange(n))
        assert (row[n:] == SPECIALS.pad).all()


def test_windows_may_move_by_one_item() -> None:
    first = all_sequences(step=0.1, windows=1, last=0).token_ids[:, 0] - 5
    of_last_user = first[first >= Users().document_starts[4]]
    assert (np.diff(of_last_user) == -1).all()
    assert of_last_user[-1] == Users().document_starts[4]


def test_windows_are_repeated_and_last_items_added() -> None:
    batch = all_sequences(windows=10, last=2)
    assert len(batch.token_ids) == 12 * 11
    assert np.array_equal(batch.token_ids, np.tile(batch.token_ids[:11], (12, 1)))
    assert np.array_equal(~batch.is_special[:110], batch.is_real[:110])
    lasts = batch.is_real.sum(axis=1, keepdims=True) - 1
    is_last = np.arange(batch.token_ids.shape[1]) == lasts
    assert np.array_equal(~batch.is_special[110:], is_last[110:])


def test_without_windows_only_the_last_items_of_users_are_added() -> None:
    batch = all_sequences(windows=0, last=1)
    assert len(batch.token_ids) == 4
    last = batch.token_ids[~batch.is_special] - 5
    assert last.tolist() == (Users().document_starts[2:] - 1).tolist()


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_last_item_sequences_mask_only_that_item(rate: float) -> None:
    batch = all_sequences(windows=0)
    index = np.arange(len(batch.token_ids))
    vocabulary = Vocabulary(100, SPECIALS)
    selected = TokenSelection(masking_rate=rate).select(
        batch, vocabulary, CounterRng(0, np.zeros_like(index), index), 0.0
    )
    assert selected.weights.sum(axis=1).tolist() == [1.0] * 4
    assert selected.positions[selected.weights > 0].tolist() == [2, 7, 7, 7]


def test_evaluation_masks_last_items() -> None:
    selected = ItemHistory(length=8, windows=10, last=0).for_evaluation
    assert (selected.windows, selected.last) == (0, 1)


def test_no_sequences_is_an_error() -> None:
    with pytest.raises(ValueError, match="must not both be 0"):
        ItemHistory(windows=0, last=0)
