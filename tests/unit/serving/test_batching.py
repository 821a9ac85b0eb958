"""Batching neither loses, swaps nor duplicates items of concurrent requests."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.serving.batching import (
    BATCH_OVERHEAD_TOKENS,
    Batcher,
    InferenceRequest,
    QueueClosed,
    QueueFull,
    QueueItem,
    select_batch,
)

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)
BUDGET = 50


class Model:
    """A model that labels every item, and records its batches."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.go = threading.Event()
        self.go.set()
        self.has_started = threading.Event()

    def read(self, items: Sequence[Any]) -> list[Any]:
        self.has_started.set()
        assert self.go.wait(10)
        self.batches.append(list(items))
        return [("read", item) for item in items]

    def count(self, items: Sequence[Any]) -> list[Any]:
        self.batches.append(list(items))
        return [("counted", item) for item in items]


@contextmanager
def batcher(
    budget: int = BUDGET, max_queue_tokens: int = 10**6, max_delay: float = 0.0
) -> Iterator[Batcher]:
    queue = Batcher(budget, max_queue_tokens, max_delay, lambda num_sequences, num_tokens: None)
    yield queue
    queue.close()


@contextmanager
def busy(model: Model, queue: Batcher) -> Iterator[Future[list[Any]]]:
    """Block the model with one item."""
    model.go.clear()
    future = queue.submit(model.read, ["first"], [1])
    assert model.has_started.wait(10)
    yield future
    model.go.set()


@given(st.lists(SIZES, min_size=1, max_size=8), st.booleans())
def test_every_item_is_computed_once_and_in_order(
    requests: list[list[int]], two_functions: bool
) -> None:
    model, sent = Model(), list[tuple[str, list[Any], Future[list[Any]]]]()
    with batcher() as queue:
        for number, sizes in enumerate(requests):
            counts = two_functions and number % 2
            items = [(number, index, size) for index, size in enumerate(sizes)]
            future = queue.submit(model.count if counts else model.read, items, sizes)
            sent.append(("counted" if counts else "read", items, future))
        for label, items, future in sent:
            assert future.result(10) == [(label, item) for item in items]
    computed = [item for batch in model.batches for item in batch]
    assert sorted(computed) == sorted(item for _, items, _ in sent for item in items)
    for batch in model.batches:
        assert max(size for *_, size in batch) * len(batch) <= BUDGET or len(batch) == 1
        assert len({number % 2 for number, *_ in batch}) == 1 or not two_functions


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=30))
def test_a_batch_has_the_first_item_and_efficient_neighbours(
    items: list[tuple[int, bool]],
) -> None:
    model = Model()
    requests = [InferenceRequest(model.read, 1), InferenceRequest(model.count, 1)]
    waiting = [QueueItem(None, size, requests[counts], 0) for size, counts in items]
    batch = select_batch(waiting, BUDGET)
    assert waiting[0] in batch
    assert len(set(batch)) == len(batch)
    assert {item.request for item in batch} == {waiting[0].request}
    sizes = [item.num_tokens for item in batch]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] * len(sizes) <= BUDGET or len(sizes) == 1
    # No remaining item is between the selected ones in length.
    remaining = [
        item.num_tokens
        for item in waiting
        if item.request is waiting[0].request and item not in batch
    ]
    assert not [size for size in remaining if sizes[-1] < size < sizes[0]]
    # Neither an additional neighbour nor a dropped item would lower the cost per token.
    longer = min((size for size in remaining if size >= sizes[0]), default=None)
    shorter = max((size for size in remaining if size <= sizes[-1]), default=None)
    others = [[longer, *sizes]] if longer else []
    others += [[*sizes, shorter]] if shorter else []
    first = waiting[0].num_tokens
    others += [sizes[1:]] if sizes[0] > first else []
    others += [sizes[:-1]] if sizes[-1] < first else []
    for other in others:
        assert other[0] * len(other) > BUDGET or cost(other) >= cost(sizes) * (1 - 1e-9)


def cost(sizes: Sequence[int]) -> float:
    """Return the computed tokens per real token."""
    return (max(sizes) * len(sizes) + BATCH_OVERHEAD_TOKENS) / sum(sizes)


@pytest.mark.parametrize("num_threads", [2, 4])
def test_idle_threads_share_one_request(num_threads: int) -> None:
    barrier = threading.Barrier(num_threads)

    def read(items: Sequence[Any]) -> list[Any]:
        barrier.wait(5)
        return list(items)

    queue = Batcher(BUDGET, 10**6, 0.0, lambda num_sequences, num_tokens: None, num_threads)
    time.sleep(0.05)  # until all threads wait
    sizes = [BUDGET // num_threads] * num_threads
    future = queue.submit(read, list(range(num_threads)), sizes)
    assert future.result(10) == list(range(num_threads))
    queue.close()


def test_waiting_items_are_computed_together() -> None:
    model = Model()
    with batcher() as queue, busy(model, queue):
        futures = [queue.submit(model.read, [number], [10]) for number in range(5)]
        model.go.set()
        wait(futures, 10)
    assert model.batches == [["first"], [0, 1, 2, 3, 4]]


def test_a_full_queue_rejects_requests_until_it_empties() -> None:
    model = Model()
    with batcher(max_queue_tokens=30) as queue:
        with busy(model, queue):
            future = queue.submit(model.read, ["a", "b"], [10, 20])
            assert queue.queue_tokens == 30
            with pytest.raises(QueueFull) as error:
                queue.submit(model.read, ["c"], [1])
            assert error.value.retry_seconds >= 1
        assert len(future.result(10)) == 2
        assert queue.submit(model.read, ["c"], [30]).result(10) == [("read", "c")]
        assert queue.queue_tokens == 0


def test_short_items_do_not_inflate_the_retry_time() -> None:
    def wait_briefly(items: Sequence[Any]) -> Sequence[Any]:
        time.sleep(0.005)
        return items

    model = Model()
    with batcher(max_queue_tokens=4000) as queue:
        for number in range(8):
            queue.submit(wait_briefly, [number], [3]).result(10)
        with busy(model, queue):
            # 80 batches of 5 ms each, not 1,333 of three tokens.
            future = queue.submit(wait_briefly, list(range(160)), [25] * 160)
            with pytest.raises(QueueFull) as error:
                queue.submit(wait_briefly, ["more"], [25])
        assert error.value.retry_seconds <= 3
        assert len(future.result(10)) == 160


def test_a_slow_function_does_not_inflate_the_retry_time_of_others() -> None:
    def slowly(items: Sequence[Any]) -> Sequence[Any]:
        time.sleep(0.5)
        return items

    model = Model()
    with batcher(max_queue_tokens=4000) as queue:
        queue.submit(slowly, ["page"], [1]).result(10)
        # The speed of the page is recorded after its result, but before the next one.
        queue.submit(model.count, ["next"], [1]).result(10)
        with busy(model, queue):
            queue.submit(model.read, ["much"], [4000])
            with pytest.raises(QueueFull) as error:
                queue.submit(model.read, ["more"], [1])
        assert error.value.retry_seconds <= 3


def test_an_idle_model_waits_for_more_items() -> None:
    model, max_delay = Model(), 0.2
    with batcher(max_delay=max_delay) as queue:
        start = time.monotonic()
        futures = [queue.submit(model.read, [number], [10]) for number in range(2)]
        wait(futures, 10)
        assert time.monotonic() - start >= max_delay
        assert model.batches == [[0, 1]]
        start = time.monotonic()
        queue.submit(model.read, list(range(5)), [10] * 5).result(10)
        assert time.monotonic() - start < max_delay, "a full batch does not wait"


def test_a_cancelled_request_is_removed_from_the_queue() -> None:
    model = Model()
    with batcher() as queue, busy(model, queue):
        kept = queue.submit(model.read, ["kept"], [10])
        cancelled = queue.submit(model.read, ["cancelled"], [10])
        assert cancelled.cancel()
        assert queue.queue_tokens == 10
        model.go.set()
        assert kept.result(10) == [("read", "kept")]
        with pytest.raises(CancelledError):
            cancelled.result()
    assert ["cancelled"] not in model.batches


def test_cancelling_a_running_request_affects_no_other() -> None:
    model = Model()
    with batcher() as queue:
        with busy(model, queue) as cancelled:
            cancelled.cancel()
        assert queue.submit(model.read, ["next"], [1]).result(10) == [("read", "next")]


def test_only_the_faulty_item_fails() -> None:
    def halve(items: Sequence[int]) -> list[float]:
        return [1 / item for item in items]

    model = Model()
    with batcher() as queue, busy(model, queue):
        futures = [queue.submit(halve, [item], [1]) for item in (1, 0, 2)]
        model.go.set()
        assert futures[0].result(10) == [1.0]
        assert futures[2].result(10) == [0.5]
        with pytest.raises(ZeroDivisionError):
            futures[1].result(10)


def test_no_item_starves() -> None:
    model = Model()
    with batcher() as queue, busy(model, queue):
        long = queue.submit(model.read, ["long"], [45])
        short = [queue.submit(model.read, [number], [5]) for number in range(40)]
        model.go.set()
        wait([long, *short], 10)
    assert model.batches[1] == ["long"]


def test_closing_finishes_waiting_requests_and_rejects_new_ones() -> None:
    model = Model()
    with batcher() as queue:
        with busy(model, queue):
            futures = [queue.submit(model.read, [number], [30]) for number in range(4)]
            closing = threading.Thread(target=queue.close)
            closing.start()
            # Submit nothing until the queue is closed.
            with pytest.raises(QueueClosed):
                while True:
                    queue.submit(model.read, [], [])
        closing.join(10)
        assert [future.result(0) for future in futures] == [[("read", n)] for n in range(4)]


def test_an_empty_request_has_an_empty_result() -> None:
    with batcher() as queue:
        assert queue.submit(Model().read, [], []).result(10) == []


def test_threads_get_separate_results() -> None:
    model, wrong = Model(), []

    def submit(number: int) -> None:
        for turn in range(50):
            items = [(number, turn, index) for index in range(1 + (number + turn) % 4)]
            sizes = [1 + (number * turn + index) % 30 for index in range(len(items))]
            if queue.submit(model.read, items, sizes).result(10) != [("read", r) for r in items]:
                wrong.append(items)

    with batcher() as queue:
        threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
