"""Work spread over processes."""

import os
import signal
import time

import pytest

from bertwright.errors import UserError
from bertwright.text.processes import chunked, in_order


class Slowest:
    """Takes longer for earlier items, so that later ones are ready first."""

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
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    assert list(in_order(Slowest, (0.02,), range(20), workers)) == list(range(20))


def test_items_are_not_taken_before_they_are_needed() -> None:
    taken: list[int] = []
    items = (taken.append(item) or item for item in range(1000))
    results = in_order(Slowest, (0.0,), items, 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(taken) < 20
    results.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_is_an_error_here(workers: int) -> None:
    with pytest.raises(UserError, match="item 0 is wrong"):
        list(in_order(Failing, (), range(5), workers))


def test_a_killed_worker_is_a_clear_error() -> None:
    with pytest.raises(UserError, match="a worker process was killed"):
        list(in_order(Dying, (), range(5), 2))


def test_at_least_one_worker_is_needed() -> None:
    with pytest.raises(UserError, match="at least 1"):
        list(in_order(Failing, (), range(5), 0))


def test_without_semaphores_the_work_is_done_here(without_semaphores: None) -> None:
    assert list(in_order(Slowest, (0.0,), range(5), 2)) == list(range(5))


def test_chunks_hold_about_so_many_characters() -> None:
    chunks = list(chunked(["aa", "b", "ccc", "d"], characters=3))
    assert chunks == [["aa", "b"], ["ccc"], ["d"]]
