"""The tokenization pool is limited in size and time."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Any

import pytest

from bertwright.serving.errors import ApiError
from bertwright.serving.tokenization_pool import MAX_QUEUED_BODIES, TokenizationPool

MANY = 40
"""Requests: more than the pool has threads."""


class SlowTokenizer:
    """A model that blocks in tokenize until it may go on."""

    def __init__(self, encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.num_started = Event(), 0
        tokenize, lock = encoder.tokenize, Lock()

        def tokenize_slowly(texts: Any) -> Any:
            with lock:
                self.num_started += 1
            assert self.go.wait(20)
            return tokenize(texts)

        monkeypatch.setattr(encoder, "tokenize", tokenize_slowly)


@pytest.fixture
def slow(encoder, monkeypatch) -> Iterator[SlowTokenizer]:
    tokenizer = SlowTokenizer(encoder, monkeypatch)
    yield tokenizer
    tokenizer.go.set()


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MANY) as pool:
        yield pool


def test_requests_time_out_during_tokenization(serving, slow: SlowTokenizer, clients: Any) -> None:
    client = serving(request_timeout_seconds=0.3)
    futures = [
        clients.submit(client.post, "/explore" if n % 2 else "/embed", json={key: "red"})
        for n in range(MANY)
        for key in ["text" if n % 2 else "inputs"]
    ]
    assert {future.result(10).status_code for future in futures} == {504}
    num_started = slow.num_started
    assert 0 < num_started < MANY
    slow.go.set()
    # The timed-out requests were cancelled.
    assert client.post("/embed", json={"inputs": "red"}).status_code == 200
    assert slow.num_started == num_started + 1


def test_the_waiting_bytes_are_limited(serving, slow: SlowTokenizer, clients: Any) -> None:
    client = serving(max_body_bytes=100)
    body = {"inputs": "a" * 80}
    futures = [clients.submit(client.post, "/embed", json=body) for _ in range(MAX_QUEUED_BODIES)]
    deadline = time.monotonic() + 10
    while slow.num_started < MAX_QUEUED_BODIES:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    response = client.post("/embed", json=body)
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert "too many texts are waiting" in response.json()["error"]
    slow.go.set()
    assert {future.result(10).status_code for future in futures} == {200}
    assert client.post("/embed", json=body).status_code == 200


def test_a_cancelled_request_counts_until_its_thread_ends() -> None:
    async def run() -> None:
        pool = TokenizationPool(max_body_bytes=1)
        started, may_end = Event(), Event()

        def block() -> None:
            started.set()
            may_end.wait()

        request = asyncio.create_task(pool(MAX_QUEUED_BODIES, block))
        await asyncio.to_thread(started.wait)
        request.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await request
        with pytest.raises(ApiError, match="too many texts"):
            await pool(1, len, "text")
        may_end.set()
        while True:
            with contextlib.suppress(ApiError):
                assert await pool(MAX_QUEUED_BODIES, len, "text") == 4
                break
            await asyncio.sleep(0)

    asyncio.run(run())


@pytest.mark.parametrize(("num_texts", "num_masks"), [(1, 300_000), (512, 500)])
def test_masks_are_counted_before_tokenization(
    serving, encoder, monkeypatch, num_texts: int, num_masks: int
) -> None:
    encoded: list[str] = []
    monkeypatch.setattr(encoder.tokenizer, "encode_with_masks", encoded.append)
    body = {"inputs": ["[MASK]" * num_masks] * num_texts}
    assert serving().post("/fill-mask", json=body).status_code == 413
    assert not encoded
