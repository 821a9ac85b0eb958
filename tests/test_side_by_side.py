"""Jobs in processes of their own: all of them, whatever some do, and an end that leaves none."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import active_children

import pytest

from bertwright import side_by_side as module
from bertwright.errors import UserError
from bertwright.machine.cores import num_cores
from bertwright.side_by_side import side_by_side
from small_jobs import failed, killed, slept, told


@pytest.mark.parametrize("processes", [1, 2])
def test_every_job_is_done_once_and_has_its_number(processes: int) -> None:
    found = list(side_by_side([partial(told, 10 * number) for number in range(5)], processes))
    assert sorted(number for number, _ in found) == list(range(5))
    assert all(own == 10 * number for number, (own, _, _) in found)
    here = {process == os.getpid() for _, (_, process, _) in found}
    assert here == {processes == 1}
    if processes > 1:
        assert {threads for *_, (_, _, threads) in found} == {max(1, num_cores() // processes)}


def test_without_semaphores_jobs_are_done_in_this_process(without_semaphores, capfd):
    results = list(side_by_side([partial(told, number) for number in range(3)], 2))
    assert [(number, process) for number, (_, process, _) in results] == [
        (number, os.getpid()) for number in range(3)
    ]
    assert "No space left" in capfd.readouterr().err


@pytest.mark.parametrize("processes", [1, 2])
def test_what_one_raises_ends_all(processes: int) -> None:
    with pytest.raises(ValueError, match="the second one"):
        list(side_by_side([partial(failed, number) for number in range(50)], processes))
    assert not active_children()


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(UserError, match="ask for fewer at once"):
        list(side_by_side([killed, killed], 2))


def test_none_waits_at_a_process_that_may_be_stopped() -> None:
    handed_out: list[int] = []
    futures: list[Future] = []

    class Pool(ThreadPoolExecutor):
        def submit(self, *call: object) -> Future:  # type: ignore[override]
            handed_out.append(1 + sum(not each.done() for each in futures))
            futures.append(super().submit(*call))  # type: ignore[arg-type]
            return futures[-1]

    left = iter([(number, partial(slept, number)) for number in range(5)])
    with Pool(2) as pool:
        begun = {pool.submit(job): number for number, job in islice(left, 2)}
        found = list(module._as_they_end(pool, begun, left))  # type: ignore[arg-type]
    assert sorted(found) == [(number, number) for number in range(5)]
    assert max(handed_out) == 2


def test_nothing_to_do_starts_nothing() -> None:
    assert not list(side_by_side([], 4))
