"""Packed sequences: every token once, no padding, another offset every epoch."""

import numpy as np
import pytest
from hypothesis import given

from bertwright.batches.formats import Contiguous, Packed
from bertwright.core.errors import UserError
from numbered_text import CLS, FIRST_TOKEN, PAD, all_sequences, documents, plan_text, text_tokens

LENGTH = 10
TEXT = [[[1, 2, 1], [3]], [[2, 2], [1]], [[1] * 9, [4, 4]], [[2]] * 3, [[3, 3]] * 8]


@given(text=documents)
def test_tokens_are_used_once_except_at_the_ends(text):
    try:
        source, split = plan_text(Packed(length=LENGTH), text)
    except UserError:
        return
    for epoch in range(4):
        batch = all_sequences(source, epoch)
        used = np.concatenate(text_tokens(batch)) - FIRST_TOKEN
        np.testing.assert_array_equal(used, used[0] + np.arange(len(used)))
        assert split.num_tokens - len(used) < 2 * LENGTH
        assert PAD not in batch.token_ids


def test_every_epoch_has_another_offset():
    source, _ = plan_text(Packed(length=LENGTH), TEXT)
    first_tokens = {
        int(source.sequences(np.array([0]), epoch).token_ids[0, 1]) for epoch in range(200)
    }
    assert len(first_tokens) >= LENGTH - 2
    assert FIRST_TOKEN in first_tokens


def test_seeds_differ():
    one, two = (plan_text(Packed(length=LENGTH), TEXT, seed)[0] for seed in (0, 1))
    assert any(
        (all_sequences(one, epoch).token_ids != all_sequences(two, epoch).token_ids).any()
        for epoch in range(3)
    )


def test_too_little_text_is_an_error():
    with pytest.raises(UserError, match="train split holds 3 tokens"):
        plan_text(Packed(length=LENGTH), [[[3]]])


def test_text_for_exactly_one_row():
    source, _ = plan_text(Packed(length=LENGTH), [[[3]], [[3]]])
    assert all_sequences(source, 5).token_ids.tolist() == [
        [2, 100, 101, 102, 3, 2, 103, 104, 105, 3]
    ]


def test_contiguous_document_ids():
    source, _ = plan_text(Contiguous(length=LENGTH, isolated=True), TEXT)
    batch = all_sequences(source, 0)
    stream, document = batch.token_ids.ravel(), batch.token_info.document_ids
    begins = batch.token_ids == CLS
    # A sequence continues document 0, unless it begins with another, which is 1.
    np.testing.assert_array_equal(document, np.cumsum(begins, axis=1))
    assert (document[:, 0] == 0).any()
    assert len(set(stream[stream >= FIRST_TOKEN])) == (stream >= FIRST_TOKEN).sum()
    plain = all_sequences(plan_text(Contiguous(length=LENGTH), TEXT)[0], 0)
    assert not plain.token_info.document_ids.any()
    assert not (plain.token_ids == CLS).any()
