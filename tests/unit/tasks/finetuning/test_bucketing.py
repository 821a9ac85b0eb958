"""Bucketed batches: every item once, little padding, a pure function of the step."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.finetuning.batching.bucket_sampler import STEPS_PER_BUCKET, BucketBatchSampler

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 9))
def test_epoch_contains_every_item_once(lengths: list[int], batch: int) -> None:
    sampler = BucketBatchSampler.from_lengths(lengths, batch, seed=3)
    for epoch in range(2):
        steps = [
            sampler.at(epoch * sampler.steps_per_epoch + s) for s in range(sampler.steps_per_epoch)
        ]
        indices = np.concatenate([step.item_indices[: step.num_real] for step in steps])
        assert sorted(indices) == list(range(len(lengths)))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=40), st.integers(1, 9))
def test_batches_have_little_padding(lengths: list[int], batch: int) -> None:
    sampler = BucketBatchSampler.from_lengths(lengths, batch, seed=3)
    for step in map(sampler.at, range(sampler.steps_per_epoch)):
        longest = max(lengths[n] for n in step.item_indices)
        assert len(step.item_indices) == min(batch, len(lengths))
        assert longest <= step.length <= min(1.06 * longest, max(lengths))


def test_items_of_a_bucket_are_sorted() -> None:
    lengths = np.random.default_rng(0).permutation(np.arange(1, 4 * STEPS_PER_BUCKET * 4 + 1))
    sampler = BucketBatchSampler.from_lengths(lengths.tolist(), 4, seed=3)
    spans = [
        np.ptp(lengths[sampler.at(step).item_indices]) for step in range(sampler.steps_per_epoch)
    ]
    # With four buckets, four consecutive items differ by about three times four.
    assert np.mean(spans) < 5 * 4
    assert {tuple(sorted(sampler.at(s).item_indices)) for s in range(200)} != {
        tuple(sorted(sampler.at(s).item_indices)) for s in range(200, 400)
    }


def test_batch_is_a_function_of_seed_and_step() -> None:
    lengths = [3 + n % 20 for n in range(50)]
    sampler, again = (
        BucketBatchSampler.from_lengths(lengths, 8, seed=1),
        BucketBatchSampler.from_lengths(lengths, 8, seed=1),
    )
    forward = [sampler.at(step).item_indices.tolist() for step in range(21)]
    backward = [again.at(step).item_indices.tolist() for step in reversed(range(21))]
    assert forward == backward[::-1]
    assert forward != [
        BucketBatchSampler.from_lengths(lengths, 8, seed=2).at(s).item_indices.tolist()
        for s in range(21)
    ]
    assert forward[:7] != forward[7:14]
