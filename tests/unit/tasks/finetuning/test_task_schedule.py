"""Schedules of several tasks: every task has its steps, and a step depends on nothing else."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.finetuning.batching.bucket_sampler import BucketBatchSampler
from bertwright.tasks.finetuning.batching.encoded_task import TaskSchedule

SIZES = st.lists(st.integers(1, 200), min_size=1, max_size=4)


def make_samplers(sizes: list[int]) -> list[BucketBatchSampler]:
    return [BucketBatchSampler.from_lengths([8] * size, 8) for size in sizes]


@given(SIZES, st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 3))
def test_epoch_has_the_steps_of_all_tasks(sizes: list[int], power: float, seed: int) -> None:
    samplers = make_samplers(sizes)
    schedule = TaskSchedule.from_samplers(samplers, power, seed)
    counts = Counter(schedule.at(step).task_index for step in range(schedule.steps_per_epoch))
    assert set(counts) == set(range(len(sizes)))
    assert tuple(counts[part] for part in range(len(sizes))) == schedule.steps_per_task
    if power == 1.0:
        assert schedule.steps_per_task == tuple(sampler.steps_per_epoch for sampler in samplers)


def test_uniform_sampling_gives_equal_steps() -> None:
    schedule = TaskSchedule.from_samplers(make_samplers([800, 80]), 0.0, 0)
    assert abs(schedule.steps_per_task[0] - schedule.steps_per_task[1]) <= 1


@given(SIZES, st.integers(0, 3))
def test_steps_are_counted_per_task(sizes: list[int], seed: int) -> None:
    schedule = TaskSchedule.from_samplers(make_samplers(sizes), 1.0, seed)
    counts: Counter[int] = Counter()
    for step in range(2 * schedule.steps_per_epoch):
        task_step = schedule.at(step)
        assert task_step.step == counts[task_step.task_index]
        counts[task_step.task_index] += 1


def test_schedule_is_a_function_of_the_step() -> None:
    forward = TaskSchedule.from_samplers(make_samplers([40, 80]), 1.0, 7)
    backward = TaskSchedule.from_samplers(make_samplers([40, 80]), 1.0, 7)
    steps = range(3 * forward.steps_per_epoch)
    assert [forward.at(s) for s in steps] == [backward.at(s) for s in reversed(steps)][::-1]
    other = TaskSchedule.from_samplers(make_samplers([40, 80]), 1.0, 8)
    assert [forward.at(s) for s in steps] != [other.at(s) for s in steps]


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_single_task_has_every_step(power: float) -> None:
    schedule = TaskSchedule.from_samplers(make_samplers([50]), power, 0)
    assert [schedule.at(step).step for step in range(20)] == list(range(20))
