"""Rows of many requests, computed together.

A thread for each model takes from a queue what is nearest in length to the row that has waited
longest, as much as a budget of tokens holds, and computes it. So no row is passed over, however
many others fit better, and little is computed on padding. The queue is bounded in tokens: what
does not fit is refused at once, with the time after which it would.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from threading import Condition, Thread
from typing import Any

Compute = Callable[[Sequence[Any]], Sequence[Any]]
"""Rows to as many results, in their order; rows are of one kind where this is the same."""

Note = Callable[[int, int], None]
"""Told of every batch: how many rows it has, and how many tokens."""

_REMEMBERED = 0.8
"""The share that what is known of the speed keeps when another batch has been computed."""


class Full(Exception):
    """The queue has no room for a request; in so many seconds it should."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full for {seconds} s")
        self.seconds = seconds


class Closed(Exception):
    """No request is taken any more."""


class Job:
    """The rows of a request: computed in any company, answered together."""

    def __init__(self, compute: Compute, num_rows: int) -> None:
        self.compute = compute
        self.arrived = time.monotonic()
        self.answer: Future[list[Any]] = Future()
        self._results: list[Any] = [None] * num_rows
        self._missing = num_rows
        if not num_rows:
            self.answer.set_result([])

    def note(self, number: int, result: Any) -> None:
        """Keep the result of a row; with the last of them the job is done."""
        self._results[number] = result
        self._missing -= 1
        if not self._missing:
            # Whoever asked may have given up in this very moment.
            with suppress(InvalidStateError):
                self.answer.set_result(self._results)

    def fail(self, error: Exception) -> None:
        """Answer with an error."""
        with suppress(InvalidStateError):
            self.answer.set_exception(error)


@dataclass(frozen=True, eq=False)
class Waiting:
    """A row of a job, and its size in tokens."""

    row: Any
    size: int
    job: Job
    number: int


def choose(waiting: Sequence[Waiting], budget: int) -> list[Waiting]:
    """The next batch, longest first: the first that waits and, of its kind, those that are nearest
    to it in length, as many as the budget holds when all are filled up to the longest.

    Where the first is larger than the budget it goes alone.
    """
    first = waiting[0]
    alike = [own for own in waiting if own.job.compute == first.job.compute]
    alike.sort(key=lambda own: -own.size)
    begin = alike.index(first)
    end = begin + 1

    def fits(start: int, stop: int) -> bool:
        inside = start >= 0 and stop <= len(alike)
        return inside and alike[start].size * (stop - start) <= budget

    while True:
        longer, shorter = fits(begin - 1, end), fits(begin, end + 1)
        if longer and shorter:
            longer = alike[begin - 1].size - first.size < first.size - alike[end].size
        if longer:
            begin -= 1
        elif shorter:
            end += 1
        else:
            return alike[begin:end]


class Batcher:
    """A queue of rows and the thread that computes them.

    ``budget`` tokens make a batch, ``bound`` tokens may wait, and an idle thread waits
    ``deadline`` seconds for company to the first row.
    """

    def __init__(self, budget: int, bound: int, deadline: float, note: Note) -> None:
        self._budget, self._bound, self._deadline, self._note = budget, bound, deadline, note
        self._changed = Condition()
        self._waiting: list[Waiting] = []
        self._tokens = 0
        self._seconds_per_token = 0.0
        self._closed = False
        self._thread = Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def bound(self) -> int:
        """How many tokens may wait."""
        return self._bound

    @property
    def waiting_tokens(self) -> int:
        """How many tokens wait."""
        return self._tokens

    def submit(
        self, compute: Compute, rows: Sequence[Any], sizes: Sequence[int]
    ) -> Future[list[Any]]:
        """Queue the rows of a request; a future of their results, in their order. Where it is
        cancelled what still waits is dropped.

        Errors: Full where there is no room for all of them, Closed behind :meth:`close`.
        """
        job, size = Job(compute, len(rows)), sum(sizes)
        with self._changed:
            if self._closed:
                raise Closed
            if self._tokens + size > self._bound:
                raise Full(max(1, ceil(self._tokens * self._seconds_per_token)))
            self._tokens += size
            self._waiting += [
                Waiting(row, own, job, number)
                for number, (row, own) in enumerate(zip(rows, sizes, strict=True))
            ]
            self._changed.notify()
        job.answer.add_done_callback(lambda _: self._drop(job))
        return job.answer

    def close(self) -> None:
        """Take no more, compute what was taken, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            began = time.monotonic()
            tokens = sum(own.size for own in batch)
            self._answer(batch)
            self._note(len(batch), tokens)
            now = (time.monotonic() - began) / max(tokens, 1)
            known = self._seconds_per_token or now
            self._seconds_per_token = _REMEMBERED * known + (1 - _REMEMBERED) * now

    def _take(self) -> list[Waiting]:
        """The next batch, when it is time for it; an empty one at the end."""
        with self._changed:
            while (patience := self._patience()) != 0:
                self._changed.wait(patience)
            batch = choose(self._waiting, self._budget) if self._waiting else []
            taken = set(batch)
            self._remove(lambda own: own in taken)
            return batch

    def _patience(self) -> float | None:
        """How many seconds to wait for more; None for as long as it takes."""
        if self._closed or self._tokens >= self._budget:
            return 0
        if not self._waiting:
            return None
        return max(0, self._waiting[0].job.arrived + self._deadline - time.monotonic())

    def _drop(self, job: Job) -> None:
        """Let the rows of a job go that nobody waits for any more."""
        if job.answer.cancelled() or job.answer.exception() is not None:
            with self._changed:
                self._remove(lambda own: own.job is job)

    def _remove(self, gone: Callable[[Waiting], bool]) -> None:
        self._waiting = [own for own in self._waiting if not gone(own)]
        self._tokens = sum(own.size for own in self._waiting)

    def _answer(self, batch: Sequence[Waiting]) -> None:
        """Compute a batch. What fails together is computed row by row: the mistake of one is not
        the others'."""
        alive = [own for own in batch if not own.job.answer.done()]
        if not alive:
            return
        try:
            results = alive[0].job.compute([own.row for own in alive])
        except Exception as error:
            if len(alive) == 1:
                alive[0].job.fail(error)
                return
            for own in alive:
                self._answer([own])
            return
        for own, result in zip(alive, results, strict=True):
            own.job.note(own.number, result)
