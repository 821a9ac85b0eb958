"""Parallel jobs in separate processes."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import active_children

import pytest

from bertwright.core.errors import UserError
from bertwright.core.hardware import num_cores
from bertwright.runtime import parallel as module
from bertwright.runtime.parallel import run_parallel
from small_jobs import fail_second, kill_itself, process_info, sleep_briefly


@pytest.mark.parametrize("processes", [1, 2])
def test_every_job_runs_once(processes: int) -> None:
    results = list(
        run_parallel([partial(process_info, 10 * number) for number in range(5)], processes)
    )
    assert sorted(number for number, _ in results) == list(range(5))
    assert all(value == 10 * number for number, (value, _, _) in results)
    here = {process == os.getpid() for _, (_, process, _) in results}
    assert here == {processes == 1}
    if processes > 1:
        assert {threads for *_, (_, _, threads) in results} == {max(1, num_cores() // processes)}


def test_jobs_run_in_this_process_without_semaphores(without_semaphores, capfd):
    results = list(run_parallel([partial(process_info, number) for number in range(3)], 2))
    assert [(number, process) for number, (_, process, _) in results] == [
        (number, os.getpid()) for number in range(3)
    ]
    assert "No space left" in capfd.readouterr().err


@pytest.mark.usefixtures("preloaded_processes")
@pytest.mark.parametrize("processes", [1, 2])
def test_exception_stops_all_jobs(processes: int) -> None:
    with pytest.raises(ValueError, match="the second one"):
        list(run_parallel([partial(fail_second, number) for number in range(50)], processes))
    assert not active_children()


@pytest.mark.usefixtures("preloaded_processes")
def test_killed_process_raises() -> None:
    with pytest.raises(UserError, match="use fewer processes"):
        list(run_parallel([kill_itself, kill_itself], 2))


def test_no_job_is_queued_at_a_process() -> None:
    num_running: list[int] = []
    futures: list[Future] = []

    class Pool(ThreadPoolExecutor):
        def submit(self, *call: object) -> Future:  # type: ignore[override]
            num_running.append(1 + sum(not future.done() for future in futures))
            futures.append(super().submit(*call))  # type: ignore[arg-type]
            return futures[-1]

    pending = iter([(number, partial(sleep_briefly, number)) for number in range(5)])
    with Pool(2) as pool:
        running = {pool.submit(job): number for number, job in islice(pending, 2)}
        results = list(module._results_as_completed(pool, running, pending))  # type: ignore[arg-type]
    assert sorted(results) == [(number, number) for number in range(5)]
    assert max(num_running) == 2


def test_no_jobs() -> None:
    assert not list(run_parallel([], 4))
