"""Shuffled spans and their targets."""

import numpy as np
import pytest
from hypothesis import assume, given, strategies

from bertwright.batches.formats import Contiguous, InputFormat, SegmentPair
from bertwright.batches.masking import TokenSelection
from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.batches.targets import mask_tokens, span_boundary_targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.objectives.word_order import shuffle_spans
from numbered_text import SPECIALS, Documents, all_sequences, documents, plan_text


def format_batch(input_format: InputFormat, text: Documents) -> SequenceBatch:
    try:
        return all_sequences(plan_text(input_format, text)[0])
    except UserError:  # too little text for one sequence
        assume(False)
        raise


# With special tokens around the text, and without any.
framed = strategies.sampled_from([SegmentPair(length=24), Contiguous(length=24)])


@given(
    text=documents, of=framed, size=strategies.integers(2, 4), rate=strategies.floats(0.05, 0.99)
)
def test_spans_are_permuted_and_predicted(text, of, size, rate):
    batch = format_batch(of, text)
    is_excluded = np.arange(24) % 5 == 0
    is_excluded = np.broadcast_to(is_excluded, batch.token_ids.shape)
    shuffled, targets = shuffle_spans(
        batch, is_excluded, size, rate, CounterRng(1, 2, np.arange(len(is_excluded)))
    )
    changed = shuffled.token_ids != batch.token_ids
    assert not (changed & (batch.is_special | is_excluded)).any()
    is_target = np.zeros(is_excluded.size, np.bool_)
    is_target[targets.positions[targets.weights > 0]] = True
    assert not (changed.ravel() & ~is_target).any()
    is_correct = batch.token_ids.ravel()[targets.positions] == targets.labels
    assert is_correct.all()
    num_targets = targets.weights.reshape(len(is_excluded), -1).sum(axis=1)
    assert set((num_targets % size).tolist()) <= {0}
    budget = np.maximum(np.rint(rate * batch.is_real.sum(axis=1)) // size, 1) * size
    assert (num_targets <= budget).all()
    is_blocked = batch.is_special | is_excluded
    spans = targets.positions[targets.weights > 0].reshape(-1, size)
    num_spans = (24 - size + 1) // size  # of spans side by side, wherever the first one starts
    for row, number in enumerate((num_targets // size).tolist()):
        firsts = set((spans[spans[:, 0] // 24 == row, 0] % 24 % size).tolist())
        assert len(firsts) == (number > 0)
        num_free = [
            sum(
                not is_blocked[row, start : start + size].any()
                for start in range(first, first + num_spans * size, size)
            )
            for first in firsts or range(size)
        ]
        assert number in [min(free, budget[row] // size) for free in num_free]
    for span in spans:
        before, after = batch.token_ids.ravel()[span], shuffled.token_ids.ravel()[span]
        assert sorted(after) == sorted(before)
        assert after.tolist() != before.tolist() or len(set(before)) < size


def test_a_short_text_has_one_span():
    # Texts of two tokens each; 30 % of all are less than two spans, for which there is room.
    batch = format_batch(SegmentPair(length=24), [[[2], [2]]] * 4)
    assert (batch.is_real.sum(1) < 10).all()
    is_excluded = np.zeros(batch.token_ids.shape, np.bool_)
    rng = CounterRng(0, 0, np.arange(len(batch.token_ids)))
    weights = shuffle_spans(batch, is_excluded, 2, 0.3, rng)[1].weights
    assert (weights.reshape(len(batch.token_ids), -1).sum(1) == 2).all()


@pytest.mark.parametrize(
    ("length", "size", "number"), [(11, 3, 3), (12, 3, 3), (9, 5, 1), (11, 4, 2)]
)
def test_spans_fill_a_sequence_wherever_the_first_one_starts(length, size, number):
    batch = format_batch(Contiguous(length=length), [[[1] * 60]])
    rng = CounterRng(0, 0, np.arange(len(batch.token_ids)))
    is_excluded = np.zeros(batch.token_ids.shape, np.bool_)
    _, targets = shuffle_spans(batch, is_excluded, size, 0.99, rng)
    is_free = ~batch.is_special.any(1)
    num_targets = targets.weights.reshape(len(batch.token_ids), -1).sum(1)
    assert is_free.any()
    assert (num_targets[is_free] == number * size).all()


def test_too_long_spans_are_an_error():
    batch = format_batch(SegmentPair(length=24), [[[1, 1, 1]] * 20] * 4)
    is_excluded = np.zeros(batch.token_ids.shape, np.bool_)
    rng = CounterRng(0, 0, np.arange(len(batch.token_ids)))
    assert shuffle_spans(batch, is_excluded, 12, 0.05, rng)[1].weights.size
    with pytest.raises(UserError, match="size to 12 at most"):
        shuffle_spans(batch, is_excluded, 13, 0.05, rng)


@given(text=documents, of=framed, rate=strategies.floats(0.1, 0.6))
def test_boundaries_are_the_nearest_unmasked_positions(text, of, rate):
    batch = format_batch(of, text)
    vocabulary, rng = Vocabulary(500, SPECIALS), CounterRng(0, 0, np.arange(len(batch.token_ids)))
    _, masked_targets = mask_tokens(
        batch, TokenSelection(masking_rate=rate), TokenReplacement(), vocabulary, rng, 0.0
    )
    targets = span_boundary_targets(batch, masked_targets, max_offset=3)
    is_unmasked = np.ones(batch.token_ids.size, np.bool_)
    is_unmasked[masked_targets.positions[masked_targets.weights > 0]] = False
    special = batch.is_special.ravel()
    for position, weight, left, is_correct, offset in zip(
        targets.positions,
        targets.weights,
        *(
            targets.extra_inputs[name]
            for name in ("left_positions", "right_positions", "span_offsets")
        ),
        strict=True,
    ):
        if weight == 0:
            continue
        assert left < position < is_correct
        assert left // 24 == is_correct // 24
        assert is_unmasked[left]
        assert is_unmasked[is_correct]
        assert not is_unmasked[left + 1 : is_correct].any()
        assert not special[left : is_correct + 1].any()
        assert offset == position - left - 1 < 3
    assert (targets.labels == masked_targets.labels).all()
