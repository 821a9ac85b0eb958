"""Dynamic batching of the sequences of many requests.

Model threads take the sequence that has waited longest, together with sequences of similar length,
within a token budget. Thus no sequence starves, and little is computed on padding. The queue is
bounded in tokens: a request that does not fit is rejected with a time after which to retry.
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

BatchFunction = Callable[[Sequence[Any]], Sequence[Any]]
"""Computes the results of a batch, in order; only items with the same function share a batch."""

BatchCallback = Callable[[int, int], None]
"""Called after every batch with its numbers of sequences and tokens."""

BATCH_OVERHEAD_TOKENS = 96
"""Fixed cost of a batch, in tokens."""

_SPEED_DECAY = 0.8
"""Factor per batch by which earlier batches count less in the averages of speed."""


class TokenSpeed:
    """A moving average of the seconds per token, including padding and batch overhead.

    Because overhead is included, batches of few short sequences also predict the time of full
    batches.
    """

    def __init__(self) -> None:
        self._num_tokens = self._seconds = 0.0

    def update(self, num_tokens: float, seconds: float) -> None:
        """Add a batch, weighted by its size."""
        self._num_tokens = _SPEED_DECAY * self._num_tokens + num_tokens
        self._seconds = _SPEED_DECAY * self._seconds + seconds

    @property
    def seconds_per_token(self) -> float:
        """Return the seconds per token; 0 before the first batch."""
        return self._seconds / self._num_tokens if self._num_tokens else 0.0


class QueueFull(Exception):
    """Raised if the queue has no room; retry after ``retry_seconds``."""

    def __init__(self, retry_seconds: int) -> None:
        super().__init__(f"the queue is full for {retry_seconds} s")
        self.retry_seconds = retry_seconds


class QueueClosed(Exception):
    """Raised if the queue no longer accepts requests."""


class InferenceRequest:
    """The items of a request, which may be computed in different batches, with one future."""

    def __init__(self, function: BatchFunction, num_items: int) -> None:
        self.function = function
        self.arrival_time = time.monotonic()
        self.future: Future[list[Any]] = Future()
        self._results: list[Any] = [None] * num_items
        self._num_missing = num_items
        self._lock = Lock()
        if not num_items:
            self.future.set_result([])

    def set_result(self, index: int, result: Any) -> None:
        """Store the result of an item; the last one completes the future."""
        with self._lock:
            self._results[index] = result
            self._num_missing -= 1
            is_done = not self._num_missing
        if is_done:
            with suppress(InvalidStateError):  # the client may have left at this moment
                self.future.set_result(self._results)

    def set_exception(self, error: Exception) -> None:
        """Fail the request."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(frozen=True, eq=False)
class QueueItem:
    """An item of a request and its size in tokens."""

    value: Any
    num_tokens: int
    request: InferenceRequest
    index: int


def select_batch(queue: Sequence[QueueItem], token_budget: int) -> list[QueueItem]:
    """Select the next batch, longest item first.

    It contains the first item of the queue and its neighbours in length with the same function,
    within ``token_budget`` including padding. Of all such batches it has the highest fraction of
    real tokens, batch overhead included. An item larger than the budget is computed alone.
    """
    first = queue[0]
    candidates = [item for item in queue if item.request.function == first.request.function]
    candidates.sort(key=lambda item: -item.num_tokens)
    index, max_items = candidates.index(first), max(1, token_budget // max(first.num_tokens, 1))
    sizes = np.array([item.num_tokens for item in candidates])
    sums = np.concatenate(([0], sizes.cumsum()))
    starts = np.arange(max(0, index + 1 - max_items), index + 1)[:, None]
    stops = np.arange(index + 1, min(len(candidates), index + max_items) + 1)[None]
    padded = (stops - starts) * sizes[starts]
    fits = (padded <= token_budget) | ((starts == index) & (stops == index + 1))
    num_real = sums[stops] - sums[starts]
    efficiency = np.where(fits, num_real / (padded + BATCH_OVERHEAD_TOKENS), -1.0)
    start, stop = np.unravel_index(efficiency.argmax(), efficiency.shape)
    return candidates[starts[start, 0] : stops[0, stop]]


class Batcher:
    """A queue of items and the threads that compute them in batches.

    A batch has at most ``token_budget`` tokens, and at most ``max_queue_tokens`` wait. An idle
    thread waits ``max_delay_seconds`` for more items to share a batch. Every thread calls
    ``init_thread`` first.
    """

    def __init__(
        self,
        token_budget: int,
        max_queue_tokens: int,
        max_delay_seconds: float,
        on_batch: BatchCallback,
        num_threads: int = 1,
        init_thread: Callable[[], None] = lambda: None,
    ) -> None:
        self._token_budget, self._max_queue_tokens = token_budget, max_queue_tokens
        self._max_delay_seconds, self._on_batch = max_delay_seconds, on_batch
        self._condition = Condition()
        self._queue: list[QueueItem] = []
        self._queue_tokens = 0
        self._num_idle_threads = 0
        self._speeds: defaultdict[BatchFunction, TokenSpeed] = defaultdict(TokenSpeed)
        self._is_closed = False
        self._init_thread = init_thread
        self._threads = [
            Thread(target=self._worker_loop, name="model", daemon=True) for _ in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def max_queue_tokens(self) -> int:
        """Return the capacity of the queue."""
        return self._max_queue_tokens

    @property
    def queue_tokens(self) -> int:
        """Return the number of waiting tokens."""
        return self._queue_tokens

    def submit(
        self, function: BatchFunction, items: Sequence[Any], num_tokens: Sequence[int]
    ) -> Future[list[Any]]:
        """Queue the items of a request; return the future of their results, in order.

        Cancelling the future drops its waiting items. Errors: QueueFull if there is no room for all
        items, QueueClosed after :meth:`close`.
        """
        inference_request, size = InferenceRequest(function, len(items)), sum(num_tokens)
        with self._condition:
            if self._is_closed:
                raise QueueClosed
            if self._queue_tokens + size > self._max_queue_tokens:
                raise QueueFull(self._seconds_until_empty())
            self._queue_tokens += size
            self._queue += [
                QueueItem(item, item_tokens, inference_request, index)
                for index, (item, item_tokens) in enumerate(zip(items, num_tokens, strict=True))
            ]
            self._condition.notify_all()  # the items may fill batches for all threads
        inference_request.future.add_done_callback(lambda _: self._cancel(inference_request))
        return inference_request.future

    def close(self) -> None:
        """Accept no more requests, compute the waiting ones, then stop the threads."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _worker_loop(self) -> None:
        self._init_thread()
        while batch := self._next_batch():
            if active := [item for item in batch if not item.request.future.done()]:
                start = time.monotonic()
                self._compute(active)
                work = len(active) * max(i.num_tokens for i in active) + BATCH_OVERHEAD_TOKENS
                # Separate speeds by function: explorer pages take much longer per token.
                self._speeds[active[0].request.function].update(work, time.monotonic() - start)
                self._on_batch(len(active), sum(item.num_tokens for item in active))

    def _seconds_until_empty(self) -> int:
        """Estimate the seconds to empty the queue, in full batches on all threads."""
        seconds = sum(
            item.num_tokens * self._speeds[item.request.function].seconds_per_token
            for item in self._queue
        )
        return max(
            1, ceil(seconds * (1 + BATCH_OVERHEAD_TOKENS / self._token_budget) / len(self._threads))
        )

    def _next_batch(self) -> list[QueueItem]:
        """Wait for the next batch; return an empty one after :meth:`close`."""
        with self._condition:
            self._num_idle_threads += 1
            while (seconds := self._wait_seconds()) != 0:
                self._condition.wait(seconds)
            batch = select_batch(self._queue, self._batch_budget) if self._queue else []
            self._num_idle_threads -= 1
            selected = set(batch)
            self._remove(lambda item: item in selected)
            return batch

    @property
    def _batch_budget(self) -> int:
        """Return the token budget of the next batch.

        Idle threads share the waiting tokens equally. The budget is at least an equal share of
        ``token_budget`` and at most all of it.
        """
        equal_part = ceil(self._queue_tokens / self._num_idle_threads)
        return min(self._token_budget, max(self._token_budget // len(self._threads), equal_part))

    def _wait_seconds(self) -> float | None:
        """Return the seconds to wait for more items; None for no limit."""
        if self._is_closed or self._queue_tokens >= self._batch_budget:
            return 0
        if not self._queue:
            return None
        return max(
            0, self._queue[0].request.arrival_time + self._max_delay_seconds - time.monotonic()
        )

    def _cancel(self, request: InferenceRequest) -> None:
        """Drop the waiting items of a cancelled or failed request."""
        if request.future.cancelled() or request.future.exception() is not None:
            with self._condition:
                self._remove(lambda item: item.request is request)

    def _remove(self, predicate: Callable[[QueueItem], bool]) -> None:
        self._queue = [item for item in self._queue if not predicate(item)]
        self._queue_tokens = sum(item.num_tokens for item in self._queue)

    def _compute(self, batch: Sequence[QueueItem]) -> None:
        """Compute a batch; after an error one by one, so that only the faulty item fails."""
        active = [item for item in batch if not item.request.future.done()]
        if not active:
            return
        try:
            results = active[0].request.function([item.value for item in active])
        except Exception as error:
            if len(active) == 1:
                active[0].request.set_exception(error)
                return
            for item in active:
                self._compute([item])
            return
        for item, result in zip(active, results, strict=True):
            item.request.set_result(item.index, result)
