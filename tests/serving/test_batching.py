"""Batching loses, swaps and doubles nothing, whoever asks beside whom."""

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
    OF_A_BATCH,
    Batcher,
    Closed,
    Full,
    Job,
    Waiting,
    choose,
)

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)
BUDGET = 50


class Model:
    """Says of every row what it is, and remembers what it was asked together."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()

    def read(self, rows: Sequence[Any]) -> list[Any]:
        self.begun.set()
        assert self.go.wait(10)
        self.batches.append(list(rows))
        return [("read", row) for row in rows]

    def count(self, rows: Sequence[Any]) -> list[Any]:
        self.batches.append(list(rows))
        return [("counted", row) for row in rows]


@contextmanager
def batcher(budget: int = BUDGET, bound: int = 10**6, deadline: float = 0.0) -> Iterator[Batcher]:
    made = Batcher(budget, bound, deadline, lambda rows, tokens: None)
    yield made
    made.close()


@contextmanager
def busy(model: Model, queue: Batcher) -> Iterator[Future[list[Any]]]:
    """While the model has one row to read and does not come to an end with it."""
    model.go.clear()
    answer = queue.submit(model.read, ["first"], [1])
    assert model.begun.wait(10)
    yield answer
    model.go.set()


@given(st.lists(SIZES, min_size=1, max_size=8), st.booleans())
def test_every_row_is_answered_once_and_in_its_place(
    requests: list[list[int]], two_kinds: bool
) -> None:
    model, sent = Model(), list[tuple[str, list[Any], Future[list[Any]]]]()
    with batcher() as queue:
        for number, sizes in enumerate(requests):
            counted = two_kinds and number % 2
            rows = [(number, place, size) for place, size in enumerate(sizes)]
            answer = queue.submit(model.count if counted else model.read, rows, sizes)
            sent.append(("counted" if counted else "read", rows, answer))
        for word, rows, answer in sent:
            assert answer.result(10) == [(word, row) for row in rows]
    computed = [row for batch in model.batches for row in batch]
    assert sorted(computed) == sorted(row for _, rows, _ in sent for row in rows)
    for batch in model.batches:
        assert max(size for *_, size in batch) * len(batch) <= BUDGET or len(batch) == 1
        assert len({number % 2 for number, *_ in batch}) == 1 or not two_kinds


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=30))
def test_a_batch_has_the_first_row_and_neighbours_that_are_worth_it(
    rows: list[tuple[int, bool]],
) -> None:
    model = Model()
    jobs = [Job(model.read, 1), Job(model.count, 1)]
    waiting = [Waiting(None, size, jobs[kind], 0) for size, kind in rows]
    batch = choose(waiting, BUDGET)
    assert waiting[0] in batch
    assert len(set(batch)) == len(batch)
    assert {own.job for own in batch} == {waiting[0].job}
    sizes = [own.size for own in batch]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] * len(sizes) <= BUDGET or len(sizes) == 1
    # Nothing that was left out stands between what was taken.
    left = [own.size for own in waiting if own.job is waiting[0].job and own not in batch]
    assert not [size for size in left if sizes[-1] < size < sizes[0]]
    # No neighbour would make it cheaper for a token, nor would any that could go.
    longer = min((size for size in left if size >= sizes[0]), default=None)
    shorter = max((size for size in left if size <= sizes[-1]), default=None)
    others = [[longer, *sizes]] if longer else []
    others += [[*sizes, shorter]] if shorter else []
    first = waiting[0].size
    others += [sizes[1:]] if sizes[0] > first else []
    others += [sizes[:-1]] if sizes[-1] < first else []
    for other in others:
        assert other[0] * len(other) > BUDGET or cost(other) >= cost(sizes) * (1 - 1e-9)


def cost(sizes: Sequence[int]) -> float:
    """What is computed for a token."""
    return (max(sizes) * len(sizes) + OF_A_BATCH) / sum(sizes)


@pytest.mark.parametrize("num_threads", [2, 4])
def test_idle_threads_share_one_request(num_threads: int) -> None:
    all_inside = threading.Barrier(num_threads)

    def read(rows: Sequence[Any]) -> list[Any]:
        all_inside.wait(5)
        return list(rows)

    queue = Batcher(BUDGET, 10**6, 0.0, lambda rows, tokens: None, num_threads)
    time.sleep(0.05)  # until all of them wait
    sizes = [BUDGET // num_threads] * num_threads
    answer = queue.submit(read, list(range(num_threads)), sizes)
    assert answer.result(10) == list(range(num_threads))
    queue.close()


def test_what_waits_together_is_computed_together() -> None:
    model = Model()
    with batcher() as queue, busy(model, queue):
        answers = [queue.submit(model.read, [number], [10]) for number in range(5)]
        model.go.set()
        wait(answers, 10)
    assert model.batches == [["first"], [0, 1, 2, 3, 4]]


def test_what_does_not_fit_the_queue_is_refused_and_fits_later() -> None:
    model = Model()
    with batcher(bound=30) as queue:
        with busy(model, queue):
            answer = queue.submit(model.read, ["a", "b"], [10, 20])
            assert queue.waiting_tokens == 30
            with pytest.raises(Full) as refusal:
                queue.submit(model.read, ["c"], [1])
            assert refusal.value.seconds >= 1
        assert len(answer.result(10)) == 2
        assert queue.submit(model.read, ["c"], [30]).result(10) == [("read", "c")]
        assert queue.waiting_tokens == 0


def test_short_rows_do_not_tell_that_a_full_queue_takes_long() -> None:
    def a_while(rows: Sequence[Any]) -> Sequence[Any]:
        time.sleep(0.005)
        return rows

    model = Model()
    with batcher(bound=4000) as queue:
        for number in range(8):
            queue.submit(a_while, [number], [3]).result(10)
        with busy(model, queue):
            # Eighty batches of 5 ms each, and not 1,333 of three tokens.
            answer = queue.submit(a_while, list(range(160)), [25] * 160)
            with pytest.raises(Full) as refusal:
                queue.submit(a_while, ["more"], [25])
        assert refusal.value.seconds <= 3
        assert len(answer.result(10)) == 160


def test_a_slow_kind_does_not_tell_that_others_take_long() -> None:
    def slowly(rows: Sequence[Any]) -> Sequence[Any]:
        time.sleep(0.5)
        return rows

    model = Model()
    with batcher(bound=4000) as queue:
        queue.submit(slowly, ["page"], [1]).result(10)
        # The page is noted when its answer is there: behind another it has been.
        queue.submit(model.count, ["next"], [1]).result(10)
        with busy(model, queue):
            queue.submit(model.read, ["much"], [4000])
            with pytest.raises(Full) as refusal:
                queue.submit(model.read, ["more"], [1])
        assert refusal.value.seconds <= 3


def test_an_idle_model_waits_for_company_until_its_deadline() -> None:
    model, deadline = Model(), 0.2
    with batcher(deadline=deadline) as queue:
        began = time.monotonic()
        answers = [queue.submit(model.read, [number], [10]) for number in range(2)]
        wait(answers, 10)
        assert time.monotonic() - began >= deadline
        assert model.batches == [[0, 1]]
        began = time.monotonic()
        queue.submit(model.read, list(range(5)), [10] * 5).result(10)
        assert time.monotonic() - began < deadline, "a full batch waits for nobody"


def test_who_leaves_is_taken_out_of_the_queue() -> None:
    model = Model()
    with batcher() as queue, busy(model, queue):
        stays = queue.submit(model.read, ["stays"], [10])
        leaves = queue.submit(model.read, ["leaves"], [10])
        assert leaves.cancel()
        assert queue.waiting_tokens == 10
        model.go.set()
        assert stays.result(10) == [("read", "stays")]
        with pytest.raises(CancelledError):
            leaves.result()
    assert ["leaves"] not in model.batches


def test_who_leaves_while_it_is_computed_harms_nobody() -> None:
    model = Model()
    with batcher() as queue:
        with busy(model, queue) as leaves:
            leaves.cancel()
        assert queue.submit(model.read, ["next"], [1]).result(10) == [("read", "next")]


def test_the_mistake_of_one_is_not_the_others() -> None:
    def halve(rows: Sequence[int]) -> list[float]:
        return [1 / row for row in rows]

    model = Model()
    with batcher() as queue, busy(model, queue):
        answers = [queue.submit(halve, [row], [1]) for row in (1, 0, 2)]
        model.go.set()
        assert answers[0].result(10) == [1.0]
        assert answers[2].result(10) == [0.5]
        with pytest.raises(ZeroDivisionError):
            answers[1].result(10)


def test_no_row_is_passed_over_for_others_that_fit_better() -> None:
    model = Model()
    with batcher() as queue, busy(model, queue):
        long = queue.submit(model.read, ["long"], [45])
        short = [queue.submit(model.read, [number], [5]) for number in range(40)]
        model.go.set()
        wait([long, *short], 10)
    assert model.batches[1] == ["long"]


def test_closing_finishes_what_was_taken_and_takes_no_more() -> None:
    model = Model()
    with batcher() as queue:
        with busy(model, queue):
            answers = [queue.submit(model.read, [number], [30]) for number in range(4)]
            closing = threading.Thread(target=queue.close)
            closing.start()
            # Nothing is asked until it has heard of its closing.
            with pytest.raises(Closed):
                while True:
                    queue.submit(model.read, [], [])
        closing.join(10)
        assert [answer.result(0) for answer in answers] == [[("read", n)] for n in range(4)]


def test_a_request_without_rows_is_answered() -> None:
    with batcher() as queue:
        assert queue.submit(Model().read, [], []).result(10) == []


def test_many_threads_get_their_own_answers() -> None:
    model, wrong = Model(), []

    def ask(number: int) -> None:
        for turn in range(50):
            rows = [(number, turn, place) for place in range(1 + (number + turn) % 4)]
            sizes = [1 + (number * turn + place) % 30 for place in range(len(rows))]
            if queue.submit(model.read, rows, sizes).result(10) != [("read", r) for r in rows]:
                wrong.append(rows)

    with batcher() as queue:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
