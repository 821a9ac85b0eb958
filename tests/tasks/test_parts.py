"""Turns of several tasks: everyone has a share, and a step's turn depends on nothing else."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.bucketing import BatchPlan
from bertwright.tasks.parts import Turns

SIZES = st.lists(st.integers(1, 200), min_size=1, max_size=4)


def plans(sizes: list[int]) -> list[BatchPlan]:
    return [BatchPlan.of([8] * size, 8) for size in sizes]


@given(SIZES, st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 3))
def test_an_epoch_has_the_steps_of_all_and_everyone_a_turn(
    sizes: list[int], power: float, seed: int
) -> None:
    own = plans(sizes)
    turns = Turns.of(own, power, seed)
    counts = Counter(turns.at(step).part for step in range(turns.steps_per_epoch))
    assert set(counts) == set(range(len(sizes)))
    assert tuple(counts[part] for part in range(len(sizes))) == turns.shares
    if power == 1.0:
        assert turns.shares == tuple(plan.steps_per_epoch for plan in own)


def test_equal_turns_are_equal() -> None:
    turns = Turns.of(plans([800, 80]), 0.0, 0)
    assert abs(turns.shares[0] - turns.shares[1]) <= 1


@given(SIZES, st.integers(0, 3))
def test_every_part_counts_its_own_steps(sizes: list[int], seed: int) -> None:
    turns = Turns.of(plans(sizes), 1.0, seed)
    seen: Counter[int] = Counter()
    for step in range(2 * turns.steps_per_epoch):
        turn = turns.at(step)
        assert turn.step == seen[turn.part]
        seen[turn.part] += 1


def test_a_turn_depends_on_the_step_alone() -> None:
    forward = Turns.of(plans([40, 80]), 1.0, 7)
    backward = Turns.of(plans([40, 80]), 1.0, 7)
    steps = range(3 * forward.steps_per_epoch)
    assert [forward.at(s) for s in steps] == [backward.at(s) for s in reversed(steps)][::-1]
    other = Turns.of(plans([40, 80]), 1.0, 8)
    assert [forward.at(s) for s in steps] != [other.at(s) for s in steps]


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_one_task_has_every_turn(power: float) -> None:
    turns = Turns.of(plans([50]), power, 0)
    assert [turns.at(step).step for step in range(20)] == list(range(20))
