"""Whole sentences in greedy chunks."""

import numpy as np
import pytest
from numbered_text import NumberedSplit

from bertwright.errors import UserError
from bertwright.examples.assembly.chunks import chain, whole_sentences


def test_sentences_longer_than_a_row_are_cut():
    units = whole_sentences(NumberedSplit.of([[[4, 4, 3], [2]], [[5]]]), room=5)
    assert units.starts.tolist() == [0, 5, 10, 11, 13]
    assert units.stops.tolist() == [5, 10, 11, 13, 18]
    assert units.document.tolist() == [0, 0, 0, 0, 1]
    assert units.after_document().tolist() == [4, 4, 4, 4, 5]


def test_a_chain_follows_its_jumps():
    assert chain(np.array([2, 9, 3, 5, 5, 6])).tolist() == [0, 2, 3, 5]


def test_a_chain_crosses_blocks(monkeypatch):
    monkeypatch.setattr("bertwright.examples.assembly.chunks._BLOCK", 2)
    assert chain(np.array([3, 2, 3, 4, 5, 6, 7])).tolist() == [0, 3, 4, 5, 6]


def test_no_text_is_an_error_that_says_so():
    with pytest.raises(UserError, match="no text"):
        whole_sentences(NumberedSplit.of([]), room=5)
