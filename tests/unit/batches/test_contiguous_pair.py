"""Contiguous text with a pair ahead of it, in both directions."""

import numpy as np
import pytest
from hypothesis import given

from bertwright.batches.formats import ContiguousPair, HalfReversed
from bertwright.core.errors import UserError
from numbered_text import CLS, FIRST_TOKEN, SEP, all_sequences, documents, plan_text

LENGTH = 17
FORMAT = ContiguousPair(length=LENGTH)
NUM_KEPT = FORMAT.num_remembered
NUM_PAIR = LENGTH - NUM_KEPT - 3


def test_the_memory_keeps_the_contiguous_part():
    assert NUM_KEPT == 9
    assert ContiguousPair(length=512).num_remembered == 256
    assert ContiguousPair(length=512, reused=0.25).num_remembered == 128
    assert HalfReversed(length=512, of=FORMAT).num_remembered == 256


@given(text=documents)
def test_sequences_follow_the_text_in_both_directions(text):
    try:
        source, split = plan_text(HalfReversed(length=LENGTH, of=FORMAT), text)
    except UserError:
        return
    stream: list[int] = []
    for start, stop in zip(split.document_starts[:-1], split.document_starts[1:], strict=True):
        stream += [SEP, *range(FIRST_TOKEN + start, FIRST_TOKEN + stop)]
    batch = all_sequences(source, epoch=1)
    count = source.num_sequences // 2
    forward, backward = batch.token_ids[:count], batch.token_ids[count:]
    first = 1 + NUM_PAIR
    assert forward[:, :NUM_KEPT].ravel().tolist() == stream[first : first + count * NUM_KEPT]
    np.testing.assert_array_equal(backward[:, :NUM_KEPT], forward[:, NUM_KEPT - 1 :: -1])
    for index in range(count):
        end = first + NUM_KEPT * (index + 1)
        for token_ids, ahead in (
            (forward[index], stream[end : end + NUM_PAIR]),
            (backward[index], stream[end - NUM_KEPT - NUM_PAIR : end - NUM_KEPT][::-1]),
        ):
            pair = token_ids[NUM_KEPT:]
            assert pair[-2:].tolist() == [SEP, CLS]
            # A follows the kept part, and is not empty.
            assert pair[0] == ahead[0]


def test_one_direction_has_half_of_the_sequences_of_both():
    text = [[[1] * 3] * 40]
    forward, _ = plan_text(FORMAT, text)
    both, _ = plan_text(HalfReversed(length=LENGTH, of=FORMAT), text)
    # A number of sequences counts them: it is whole.
    assert 2 * len(range(forward.num_sequences)) == both.num_sequences
    one, other = all_sequences(forward), all_sequences(both)
    np.testing.assert_array_equal(one.token_ids, other.token_ids[: len(one.token_ids)])


@given(text=documents)
def test_segments_end_at_separators(text):
    try:
        source, _ = plan_text(HalfReversed(length=LENGTH, of=FORMAT), text)
    except UserError:
        return
    batch = all_sequences(source)
    is_backward = batch.token_info.is_backward
    for row, segment_ids in enumerate(batch.token_info.segment_ids):
        token_ids = batch.token_ids[row]
        ends = np.flatnonzero(np.diff(segment_ids))
        assert token_ids[ends].tolist() == [SEP, SEP]
        assert segment_ids[0] == 0
        assert segment_ids[-1] == 2
        # B is contiguous text, in the direction of the sequence.
        second = token_ids[ends[0] + 1 : ends[1]]
        step = -1 if is_backward[row, 0] else 1
        is_inside = (second[1:] >= FIRST_TOKEN) & (second[:-1] >= FIRST_TOKEN)
        assert (np.diff(second)[is_inside] == step).all()
    columns = np.broadcast_to(np.arange(LENGTH), is_backward.shape)
    expected = np.where(is_backward, LENGTH - 1 - columns, columns)
    np.testing.assert_array_equal(batch.token_info.position_ids, expected)


@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_the_second_text_continues_the_first_or_is_random(fraction):
    text = [[[1] * 3] * 400]
    source, split = plan_text(ContiguousPair(length=LENGTH, next=fraction), text)
    batch = all_sequences(source)
    num_next = num_whole = 0
    for row, segment_ids in enumerate(batch.token_info.segment_ids):
        gap = int(np.flatnonzero(np.diff(segment_ids))[0])
        last, first = batch.token_ids[row, gap - 1], batch.token_ids[row, gap + 1]
        assert (first - FIRST_TOKEN) in split.sentence_starts
        # A ends with a sentence, unless its end was truncated.
        num_whole += int(last + 1 - FIRST_TOKEN in split.sentence_starts)
        num_next += int(first == last + 1)
    assert num_whole > 60
    assert num_next == num_whole if fraction == 1.0 else num_next < num_whole / 10
    again = source.sequences(np.arange(source.num_sequences), 1)
    assert (again.token_ids != batch.token_ids).any()
    assert batch.token_info.is_backward is None


def test_the_first_text_ends_and_the_random_one_begins_at_any_sentence():
    text = [[[1]] * 3000]
    lengths, starts = [], []
    for fraction in (1.0, 0.0):
        source, split = plan_text(ContiguousPair(length=LENGTH, next=fraction), text)
        for token_ids in all_sequences(source).token_ids:
            first, second = np.split(token_ids[:-2], np.flatnonzero(token_ids[:-2] == SEP))
            num_first, num_second = len(first) - NUM_KEPT, len(second) - 1
            # Together they fill the sequence.
            assert num_first + num_second == NUM_PAIR
            lengths.append(num_first)
            if fraction == 1.0:
                assert second[1] == first[-1] + 1
            else:
                starts.append(second[1] - FIRST_TOKEN)
    counts = np.bincount(lengths, minlength=NUM_PAIR)[1:] / len(lengths)
    assert counts.tolist() == pytest.approx([1 / (NUM_PAIR - 1)] * (NUM_PAIR - 1), abs=0.06)
    quarters = np.histogram(starts, 4, (0, split.num_tokens))[0] / len(starts)
    assert quarters.tolist() == pytest.approx([0.25] * 4, abs=0.08)
    assert max(starts) + NUM_PAIR >= 0.98 * split.num_tokens
