"""Batches of like length: every row once, few shapes, a pure function of the step."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.bucketing import BatchPlan, few_lengths

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 9))
def test_an_epoch_sees_every_row_once(lengths: list[int], batch: int) -> None:
    plan = BatchPlan.of(lengths, batch, seed=3)
    for epoch in range(2):
        steps = [plan.at(epoch * plan.steps_per_epoch + s) for s in range(plan.steps_per_epoch)]
        seen = np.concatenate([step.numbers[: step.num_real] for step in steps])
        assert sorted(seen) == list(range(len(lengths)))


@given(LENGTHS, st.integers(1, 9))
def test_rows_fit_and_shapes_are_few(lengths: list[int], batch: int) -> None:
    plan = BatchPlan.of(lengths, batch, seed=3)
    steps = [plan.at(step) for step in range(plan.steps_per_epoch)]
    assert {len(step.numbers) for step in steps} == {min(batch, len(lengths))}
    assert len({step.length for step in steps}) <= 8
    assert all(lengths[n] <= step.length for step in steps for n in step.numbers)


def test_a_step_is_a_function_of_seed_and_place() -> None:
    lengths = [3 + n % 20 for n in range(50)]
    plan, again = BatchPlan.of(lengths, 8, seed=1), BatchPlan.of(lengths, 8, seed=1)
    forward = [plan.at(step).numbers.tolist() for step in range(21)]
    backward = [again.at(step).numbers.tolist() for step in reversed(range(21))]
    assert forward == backward[::-1]
    assert forward != [BatchPlan.of(lengths, 8, seed=2).at(s).numbers.tolist() for s in range(21)]
    assert forward[:7] != forward[7:14]


@given(LENGTHS, st.integers(1, 3))
def test_the_lengths_are_those_that_waste_least(lengths: list[int], most: int) -> None:
    candidates = sorted({-(-length // 4) * 4 for length in lengths})
    chosen = few_lengths(lengths, most)

    def places(tops: tuple[int, ...]) -> int:
        return sum(min(top for top in tops if top >= length) for length in lengths)

    every_choice = [
        (*some, candidates[-1])
        for count in range(min(most, len(candidates)))
        for some in combinations(candidates[:-1], count)
    ]
    assert len(chosen) <= most
    assert places(tuple(chosen)) == min(map(places, every_choice))
