"""Parallel map over worker processes."""

import os
import signal
import time

import pytest

from bertwright.core.errors import UserError
from bertwright.core.parallel import chunk_texts, map_in_order


class Slowest:
    """A function that takes longer for earlier items."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, item: int) -> int:
        time.sleep(self._seconds / (1 + item))
        return item


class Failing:
    def __call__(self, item: int) -> int:
        raise UserError(f"item {item} is wrong")


class Dying:
    def __call__(self, item: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return item


@pytest.mark.parametrize("workers", [1, 3])
def test_results_are_in_order(workers: int) -> None:
    assert list(map_in_order(Slowest, (0.02,), range(20), workers)) == list(range(20))


def test_items_are_consumed_lazily() -> None:
    taken: list[int] = []
    items = (taken.append(item) or item for item in range(1000))
    results = map_in_order(Slowest, (0.0,), items, 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(taken) < 20
    results.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_error_in_a_worker_is_raised(workers: int) -> None:
    with pytest.raises(UserError, match="item 0 is wrong"):
        list(map_in_order(Failing, (), range(5), workers))


def test_killed_worker_raises() -> None:
    with pytest.raises(UserError, match="a worker process was killed"):
        list(map_in_order(Dying, (), range(5), 2))


def test_zero_workers_raise() -> None:
    with pytest.raises(UserError, match="at least 1"):
        list(map_in_order(Failing, (), range(5), 0))


def test_work_runs_in_this_process_without_semaphores(without_semaphores: None) -> None:
    assert list(map_in_order(Slowest, (0.0,), range(5), 2)) == list(range(5))


def test_chunk_size() -> None:
    chunks = list(chunk_texts(["aa", "b", "ccc", "d"], chunk_characters=3))
    assert chunks == [["aa", "b"], ["ccc"], ["d"]]
