"""Batches of like length: every row once, little padding, a pure function of the step."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.bucketing import GROUP_STEPS, BatchPlan

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 9))
def test_an_epoch_sees_every_row_once(lengths: list[int], batch: int) -> None:
    plan = BatchPlan.of(lengths, batch, seed=3)
    for epoch in range(2):
        steps = [plan.at(epoch * plan.steps_per_epoch + s) for s in range(plan.steps_per_epoch)]
        seen = np.concatenate([step.numbers[: step.num_real] for step in steps])
        assert sorted(seen) == list(range(len(lengths)))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=40), st.integers(1, 9))
def test_a_batch_is_hardly_longer_than_its_rows(lengths: list[int], batch: int) -> None:
    plan = BatchPlan.of(lengths, batch, seed=3)
    for step in map(plan.at, range(plan.steps_per_epoch)):
        longest = max(lengths[n] for n in step.numbers)
        assert len(step.numbers) == min(batch, len(lengths))
        assert longest <= step.length <= min(1.06 * longest, max(lengths))


def test_rows_of_a_group_are_sorted() -> None:
    lengths = np.random.default_rng(0).permutation(np.arange(1, 4 * GROUP_STEPS * 4 + 1))
    plan = BatchPlan.of(lengths.tolist(), 4, seed=3)
    spans = [np.ptp(lengths[plan.at(step).numbers]) for step in range(plan.steps_per_epoch)]
    # Of four groups: four rows that follow each other stand some three times four apart.
    assert np.mean(spans) < 5 * 4
    assert {tuple(sorted(plan.at(s).numbers)) for s in range(200)} != {
        tuple(sorted(plan.at(s).numbers)) for s in range(200, 400)
    }


def test_a_step_is_a_function_of_seed_and_place() -> None:
    lengths = [3 + n % 20 for n in range(50)]
    plan, again = BatchPlan.of(lengths, 8, seed=1), BatchPlan.of(lengths, 8, seed=1)
    forward = [plan.at(step).numbers.tolist() for step in range(21)]
    backward = [again.at(step).numbers.tolist() for step in reversed(range(21))]
    assert forward == backward[::-1]
    assert forward != [BatchPlan.of(lengths, 8, seed=2).at(s).numbers.tolist() for s in range(21)]
    assert forward[:7] != forward[7:14]
