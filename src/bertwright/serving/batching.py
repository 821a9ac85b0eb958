"""Rows of many requests, computed together.

The threads of a model take from a queue the row that has waited longest with those near it in
length that are worth the padding, as much as a budget of tokens holds, and compute it. So no row is
passed over, however many others fit better, and little is computed on padding. The queue is bounded
in tokens: what does not fit is refused at once, with the time after which it would.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from threading import Condition, Lock, Thread
from typing import Any

import numpy as np

Compute = Callable[[Sequence[Any]], Sequence[Any]]
"""Rows to as many results, in their order; rows are of one kind where this is the same."""

Note = Callable[[int, int], None]
"""Told of every batch: how many rows it has, and how many tokens."""

OF_A_BATCH = 96
"""As many tokens could be computed in the time that a batch takes whatever it holds."""

_REMEMBERED = 0.8
"""The share that what is known of the speed keeps when another batch has been computed."""


class Speed:
    """How many ``seconds`` a token takes, padding and ``OF_A_BATCH`` counted as such: by these a
    batch of few short rows, which takes its time whatever it holds, tells of full ones, too."""

    def __init__(self) -> None:
        self._work = self._seconds = 0.0

    def note(self, work: float, seconds: float) -> None:
        """Of another batch; the more it was, the more it says."""
        self._work = _REMEMBERED * self._work + work
        self._seconds = _REMEMBERED * self._seconds + seconds

    @property
    def seconds(self) -> float:
        """0 where nothing was computed yet."""
        return self._seconds / self._work if self._work else 0.0


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
        self._lock = Lock()
        if not num_rows:
            self.answer.set_result([])

    def note(self, number: int, result: Any) -> None:
        """Keep the result of a row; with the last of them the job is done."""
        with self._lock:
            self._results[number] = result
            self._missing -= 1
            done = not self._missing
        if done:
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
    """The next batch, longest first: the first that waits and, of its kind, its neighbours in
    length, as many as the budget holds when all are filled up to the longest. Of all that could be
    taken so it is what computes least, padding and ``OF_A_BATCH`` included, for a token.

    Where the first is larger than the budget it goes alone.
    """
    first = waiting[0]
    alike = [own for own in waiting if own.job.compute == first.job.compute]
    alike.sort(key=lambda own: -own.size)
    place, most = alike.index(first), max(1, budget // max(first.size, 1))
    sizes = np.array([own.size for own in alike])
    sums = np.concatenate(([0], sizes.cumsum()))
    begins = np.arange(max(0, place + 1 - most), place + 1)[:, None]
    ends = np.arange(place + 1, min(len(alike), place + most) + 1)[None]
    computed = (ends - begins) * sizes[begins]
    fits = (computed <= budget) | ((begins == place) & (ends == place + 1))
    share = np.where(fits, (sums[ends] - sums[begins]) / (computed + OF_A_BATCH), -1.0)
    begin, end = np.unravel_index(share.argmax(), share.shape)
    return alike[begins[begin, 0] : ends[0, end]]


class Batcher:
    """A queue of rows and the threads that compute them, a batch each at a time.

    ``budget`` tokens make a batch where more than one for each idle thread waits, ``bound`` tokens
    may wait, and an idle thread waits ``deadline`` seconds for company to the first row. ``begin``
    is called by every thread first.
    """

    def __init__(
        self,
        budget: int,
        bound: int,
        deadline: float,
        note: Note,
        num_threads: int = 1,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._budget, self._bound, self._deadline, self._note = budget, bound, deadline, note
        self._changed = Condition()
        self._waiting: list[Waiting] = []
        self._tokens = 0
        self._num_idle = 0
        self._speeds: defaultdict[Compute, Speed] = defaultdict(Speed)
        self._closed = False
        self._begin = begin
        self._threads = [
            Thread(target=self._run, name="model", daemon=True) for _ in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

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
                raise Full(self._seconds_until_empty())
            self._tokens += size
            self._waiting += [
                Waiting(row, own, job, number)
                for number, (row, own) in enumerate(zip(rows, sizes, strict=True))
            ]
            # There may be batches for all threads in it.
            self._changed.notify_all()
        job.answer.add_done_callback(lambda _: self._drop(job))
        return job.answer

    def close(self) -> None:
        """Take no more, compute what was taken, and end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        self._begin()
        while batch := self._take():
            if alive := [own for own in batch if not own.job.answer.done()]:
                began = time.monotonic()
                self._answer(alive)
                work = len(alive) * max(own.size for own in alive) + OF_A_BATCH
                # Of its kind: a token of a page, say, takes many times as long as others.
                self._speeds[alive[0].job.compute].note(work, time.monotonic() - began)
                self._note(len(alive), sum(own.size for own in alive))

    def _seconds_until_empty(self) -> int:
        """How long all that waits should take, in batches that are full, of all threads."""
        seconds = sum(own.size * self._speeds[own.job.compute].seconds for own in self._waiting)
        return max(1, ceil(seconds * (1 + OF_A_BATCH / self._budget) / len(self._threads)))

    def _take(self) -> list[Waiting]:
        """The next batch, when it is time for it; an empty one at the end."""
        with self._changed:
            self._num_idle += 1
            while (patience := self._patience()) != 0:
                self._changed.wait(patience)
            batch = choose(self._waiting, self._share) if self._waiting else []
            self._num_idle -= 1
            taken = set(batch)
            self._remove(lambda own: own in taken)
            return batch

    @property
    def _share(self) -> int:
        """The tokens of an idle thread's next batch: its equal part of all that wait, but no more
        than the budget, nor less than its part of that."""
        equal = ceil(self._tokens / self._num_idle)
        return min(self._budget, max(self._budget // len(self._threads), equal))

    def _patience(self) -> float | None:
        """How many seconds to wait for more; None for as long as it takes."""
        if self._closed or self._tokens >= self._share:
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
