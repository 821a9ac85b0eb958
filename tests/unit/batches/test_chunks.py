"""Whole sentences in greedy chunks."""

import numpy as np
import pytest

from bertwright.batches.formats.arrangement.chunks import chunk_starts, split_long_sentences
from bertwright.core.errors import UserError
from numbered_text import NumberedSplit


def test_long_sentences_are_split():
    units = split_long_sentences(NumberedSplit.of([[[4, 4, 3], [2]], [[5]]]), max_tokens=5)
    assert units.starts.tolist() == [0, 5, 10, 11, 13]
    assert units.stops.tolist() == [5, 10, 11, 13, 18]
    assert units.document_ids.tolist() == [0, 0, 0, 0, 1]
    assert units.next_document_start().tolist() == [4, 4, 4, 4, 5]


def test_chain_follows_jumps():
    assert chunk_starts(np.array([2, 9, 3, 5, 5, 6])).tolist() == [0, 2, 3, 5]


def test_chain_crosses_blocks(monkeypatch):
    monkeypatch.setattr("bertwright.batches.formats.arrangement.chunks._BLOCK_SIZE", 2)
    assert chunk_starts(np.array([3, 2, 3, 4, 5, 6, 7])).tolist() == [0, 3, 4, 5, 6]


def test_empty_split_is_an_error():
    with pytest.raises(UserError, match="no text"):
        split_long_sentences(NumberedSplit.of([]), max_tokens=5)
