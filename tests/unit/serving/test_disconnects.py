"""Disconnects, timeouts, limits and graceful shutdown."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi import FastAPI

from bertwright.serving.app import create_app
from bertwright.serving.batching import Batcher
from bertwright.serving.settings import ServingSettings

Receive = Callable[[], Awaitable[dict[str, Any]]]

BODY = json.dumps({"inputs": "red bird"}).encode()


SCOPE: dict[str, Any] = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/embed",
    "raw_path": b"/embed",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
}


async def post(app: FastAPI, receive: Receive, headers: Sequence[tuple[str, str]] = ()) -> Any:
    """Send a request to /embed; return status, content and headers of the response."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    extra = [(name.encode(), value.encode()) for name, value in headers]
    scope = {**SCOPE, "headers": [*SCOPE["headers"], *extra]}
    await app(scope, receive, send)
    status = sent[0]["status"]
    return status, json.loads(b"".join(m.get("body", b"") for m in sent)), dict(sent[0]["headers"])


def complete_body(body: bytes = BODY) -> Receive:
    """A client that sends a body and stays connected."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        if (message := next(messages, None)) is not None:
            return message
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    return receive


class BlockedModel:
    """A model that blocks until it may go on."""

    def __init__(self, encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.has_started, self.num_embedded = threading.Event(), threading.Event(), 0
        embed_ids = encoder.embed_ids
        self.go.set()

        def embed_slowly(sequences: Any, *args: Any) -> Any:
            self.has_started.set()
            assert self.go.wait(20)
            self.num_embedded += len(sequences)
            return embed_ids(sequences, *args)

        monkeypatch.setattr(encoder, "embed_ids", embed_slowly)


@pytest.fixture
def blocked(encoder, monkeypatch) -> BlockedModel:
    return BlockedModel(encoder, monkeypatch)


@contextmanager
def blocked_app(encoder: Any, blocked: BlockedModel, **settings: Any) -> Iterator[FastAPI]:
    """An application whose model is blocked."""
    app = create_app({"encoder": encoder}, ServingSettings(**settings))
    blocked.has_started.clear()
    blocked.go.clear()
    blocked.num_embedded = 0
    yield app
    blocked.go.set()
    app.state.service.models.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


def test_a_disconnected_request_is_not_computed(encoder, blocked) -> None:
    with blocked_app(encoder, blocked) as app:
        batcher = app.state.service.models.workers["encoder"].batcher

        async def main() -> None:
            first = asyncio.create_task(post(app, complete_body()))
            await until(blocked.has_started.is_set)
            was_sent = asyncio.Event()
            body = complete_body()

            async def disconnect_when_queued() -> dict[str, Any]:
                if not was_sent.is_set():
                    was_sent.set()
                    return await body()
                await until(lambda: batcher.queue_tokens > 0)
                return {"type": "http.disconnect"}

            status, _, _ = await post(app, disconnect_when_queued)
            assert status == 499
            await until(lambda: batcher.queue_tokens == 0)
            blocked.go.set()
            assert (await first)[0] == 200

        asyncio.run(main())
    assert blocked.num_embedded == 1
    assert app.state.admission.num_active == 0


def test_a_request_disconnected_during_tokenization_is_not_queued(encoder, monkeypatch) -> None:
    app, go, has_started = create_app({"encoder": encoder}), threading.Event(), threading.Event()
    batcher = app.state.service.models.workers["encoder"].batcher
    tokenize, submit = encoder.tokenize, batcher.submit
    num_queued = 0

    def tokenize_slowly(texts: Any) -> Any:
        has_started.set()
        assert go.wait(20)
        return tokenize(texts)

    def count(*args: Any) -> Any:
        nonlocal num_queued
        num_queued += 1
        return submit(*args)

    monkeypatch.setattr(encoder, "tokenize", tokenize_slowly)
    monkeypatch.setattr(batcher, "submit", count)

    async def main() -> None:
        messages = iter([complete_body()])

        async def receive() -> dict[str, Any]:
            if (first := next(messages, None)) is not None:
                return await first()
            await until(has_started.is_set)
            return {"type": "http.disconnect"}

        async with asyncio.timeout(10):
            assert (await post(app, receive))[0] == 499
        go.set()
        assert (await post(app, complete_body()))[0] == 200

    asyncio.run(main())
    assert num_queued == 1


def test_a_request_that_times_out_is_not_computed(encoder, blocked) -> None:
    with blocked_app(encoder, blocked, request_timeout_seconds=0.1) as app:

        async def main() -> None:
            first = asyncio.create_task(post(app, complete_body()))
            await until(blocked.has_started.is_set)
            answers = await asyncio.gather(first, *(post(app, complete_body()) for _ in range(3)))
            assert {status for status, _, _ in answers} == {504}
            assert "no result within 0.1 s" in answers[0][1]["error"]
            assert app.state.service.models.workers["encoder"].batcher.queue_tokens == 0

        asyncio.run(main())
    # Only the request that had started before the timeout.
    assert blocked.num_embedded == 1


def test_a_missing_body_times_out(encoder) -> None:
    app = create_app({"encoder": encoder}, ServingSettings(request_timeout_seconds=0.05))

    async def never() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    status, answer, headers = asyncio.run(post(app, never))
    assert (status, answer["error"]) == (408, "the body did not arrive within 0.05 s")
    assert headers[b"connection"] == b"close"


@pytest.mark.parametrize("expecting", [True, False])
def test_the_body_of_a_rejected_request_is_not_requested(encoder, expecting: bool) -> None:
    app = create_app(
        {"encoder": encoder}, ServingSettings(api_keys=frozenset({"a-key-of-a-server"}))
    )
    num_received = 0

    async def never() -> dict[str, Any]:
        nonlocal num_received
        num_received += 1
        await asyncio.sleep(60)
        return {}

    async def main() -> Any:
        async with asyncio.timeout(10):
            headers = [("content-length", "10")]
            return await post(app, never, headers + [("expect", "100-continue")] * expecting)

    status, _, headers = asyncio.run(main())
    assert (status, headers[b"connection"]) == (401, b"close")
    assert num_received == (0 if expecting else 1)


def test_a_rejected_request_with_a_complete_body_keeps_the_connection(encoder) -> None:
    app = create_app(
        {"encoder": encoder}, ServingSettings(api_keys=frozenset({"a-key-of-a-server"}))
    )
    status, _, headers = asyncio.run(post(app, complete_body()))
    assert status == 401
    assert b"connection" not in headers


def test_a_disconnect_during_upload_ends_the_request(encoder) -> None:
    app = create_app({"encoder": encoder}, ServingSettings())
    messages = iter(
        [
            {"type": "http.request", "body": BODY[:5], "more_body": True},
            {"type": "http.disconnect"},
        ]
    )

    async def receive() -> dict[str, Any]:
        return next(messages)

    assert asyncio.run(post(app, receive))[0] == 499
    assert app.state.admission.num_active == 0


@pytest.mark.parametrize("has_length", [True, False])
def test_a_too_large_body_is_rejected(encoder, has_length: bool) -> None:
    app = create_app({"encoder": encoder}, ServingSettings(max_body_bytes=4096))
    num_read = 0

    async def endless() -> dict[str, Any]:
        nonlocal num_read
        num_read += 1
        return {"type": "http.request", "body": b" " * 1024, "more_body": True}

    headers = [("content-length", "10000000")] if has_length else []
    status, answer, response_headers = asyncio.run(post(app, endless, headers))
    assert (status, response_headers[b"connection"]) == (413, b"close")
    assert answer["error"].startswith("the body has more than 4096 bytes")
    assert num_read == 16 * 4
    assert app.state.admission.num_active == 0


def test_a_client_that_does_not_read_times_out(encoder) -> None:
    app = create_app({"encoder": encoder}, ServingSettings(request_timeout_seconds=0.05))

    async def never(message: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    asyncio.run(app(SCOPE, complete_body(), never))
    assert app.state.admission.num_active == 0


def test_a_full_queue_responds_with_429_and_retry_after(encoder, blocked) -> None:
    with blocked_app(encoder, blocked, max_queue_tokens=12) as app:

        async def main() -> None:
            first = asyncio.create_task(post(app, complete_body()))
            await until(blocked.has_started.is_set)
            # Each request has four tokens, so three fit.
            more = [asyncio.create_task(post(app, complete_body())) for _ in range(8)]
            await until(lambda: sum(task.done() for task in more) == 5)
            rejected = [task.result() for task in more if task.done()]
            assert {status for status, _, _ in rejected} == {429}
            assert all(int(headers[b"retry-after"]) >= 1 for _, _, headers in rejected)
            blocked.go.set()
            answers = await asyncio.gather(first, *more)
            assert [status for status, _, _ in answers].count(200) == 4

        asyncio.run(main())


def test_retry_after_is_at_most_the_request_timeout(
    encoder, blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batcher, "_seconds_until_empty", lambda _: 1217)
    with blocked_app(encoder, blocked, max_queue_tokens=4, request_timeout_seconds=20) as app:

        async def main() -> None:
            tasks = [asyncio.create_task(post(app, complete_body()))]
            await until(blocked.has_started.is_set)
            tasks += [asyncio.create_task(post(app, complete_body())) for _ in range(2)]
            await until(lambda: any(task.done() for task in tasks))
            (status, _, headers) = next(task.result() for task in tasks if task.done())
            assert (status, headers[b"retry-after"]) == (429, b"20")
            blocked.go.set()
            await asyncio.gather(*tasks)

        asyncio.run(main())


def test_the_number_of_concurrent_requests_is_limited(encoder, blocked) -> None:
    with blocked_app(encoder, blocked, max_requests=2) as app:

        async def main() -> None:
            active = [asyncio.create_task(post(app, complete_body())) for _ in range(2)]
            await until(blocked.has_started.is_set)
            assert (await post(app, complete_body()))[0] == 429
            blocked.go.set()
            assert [(await task)[0] for task in active] == [200, 200]
            assert (await post(app, complete_body()))[0] == 200

        asyncio.run(main())


def test_closed_admission_finishes_active_requests_and_rejects_new_ones(encoder, blocked) -> None:
    with blocked_app(encoder, blocked) as app:

        async def main() -> None:
            active = asyncio.create_task(post(app, complete_body()))
            await until(blocked.has_started.is_set)
            app.state.admission.close()
            status, answer, headers = await post(app, complete_body())
            assert status == 503
            assert answer["error"] == "the server is shutting down: use another one"
            assert headers[b"retry-after"] == b"1"
            blocked.go.set()
            assert (await active)[0] == 200

        asyncio.run(main())
    assert app.state.admission.num_active == 0
