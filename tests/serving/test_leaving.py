"""Who leaves is forgotten, who is slow is told so, and a closed door lets out but not in."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi import FastAPI

from bertwright.serving.application import application
from bertwright.serving.batching import Batcher
from bertwright.serving.settings import Settings

Receive = Callable[[], Awaitable[dict[str, Any]]]

ASKED = json.dumps({"inputs": "red bird"}).encode()


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


async def ask(app: FastAPI, receive: Receive, headers: Sequence[tuple[str, str]] = ()) -> Any:
    """The status, the content and the headers of the answer to a request for /embed."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    extra = [(name.encode(), value.encode()) for name, value in headers]
    scope = {**SCOPE, "headers": [*SCOPE["headers"], *extra]}
    await app(scope, receive, send)
    status = sent[0]["status"]
    return status, json.loads(b"".join(m.get("body", b"") for m in sent)), dict(sent[0]["headers"])


def whole(body: bytes = ASKED) -> Receive:
    """A client that sends a body and stays."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        if (message := next(messages, None)) is not None:
            return message
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    return receive


class Stopped:
    """A model that reads nothing until it may go on."""

    def __init__(self, encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun, self.num_read = threading.Event(), threading.Event(), 0
        read = encoder.embed_rows
        self.go.set()

        def slowly(rows: Any, *more: Any) -> Any:
            self.begun.set()
            assert self.go.wait(20)
            self.num_read += len(rows)
            return read(rows, *more)

        monkeypatch.setattr(encoder, "embed_rows", slowly)


@pytest.fixture
def stopped(encoder, monkeypatch) -> Stopped:
    return Stopped(encoder, monkeypatch)


@contextmanager
def stopping(encoder: Any, stopped: Stopped, **settings: Any) -> Iterator[FastAPI]:
    """An application whose model is stopped."""
    app = application({"encoder": encoder}, Settings(**settings))
    stopped.begun.clear()
    stopped.go.clear()
    stopped.num_read = 0
    yield app
    stopped.go.set()
    app.state.desk.models.close()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happened():
            await asyncio.sleep(0.002)


def test_who_leaves_is_not_computed(encoder, stopped) -> None:
    with stopping(encoder, stopped) as app:
        batcher = app.state.desk.models.all["encoder"].batcher

        async def main() -> None:
            first = asyncio.create_task(ask(app, whole()))
            await until(stopped.begun.is_set)
            left = asyncio.Event()
            body = whole()

            async def leaving() -> dict[str, Any]:
                if not left.is_set():
                    left.set()
                    return await body()
                await until(lambda: batcher.waiting_tokens > 0)
                return {"type": "http.disconnect"}

            status, _, _ = await ask(app, leaving)
            assert status == 499
            await until(lambda: batcher.waiting_tokens == 0)
            stopped.go.set()
            assert (await first)[0] == 200

        asyncio.run(main())
    assert stopped.num_read == 1
    assert app.state.gate.num_inside == 0


def test_who_leaves_while_its_texts_become_pieces_is_not_queued(encoder, monkeypatch) -> None:
    app, go, begun = application({"encoder": encoder}), threading.Event(), threading.Event()
    batcher = app.state.desk.models.all["encoder"].batcher
    pieces, submit = encoder.pieces, batcher.submit
    num_queued = 0

    def slowly(texts: Any) -> Any:
        begun.set()
        assert go.wait(20)
        return pieces(texts)

    def counted(*given: Any) -> Any:
        nonlocal num_queued
        num_queued += 1
        return submit(*given)

    monkeypatch.setattr(encoder, "pieces", slowly)
    monkeypatch.setattr(batcher, "submit", counted)

    async def main() -> None:
        messages = iter([whole()])

        async def receive() -> dict[str, Any]:
            if (first := next(messages, None)) is not None:
                return await first()
            await until(begun.is_set)
            return {"type": "http.disconnect"}

        async with asyncio.timeout(10):
            assert (await ask(app, receive))[0] == 499
        go.set()
        assert (await ask(app, whole()))[0] == 200

    asyncio.run(main())
    assert num_queued == 1


def test_who_waits_too_long_is_told_so_and_not_computed(encoder, stopped) -> None:
    with stopping(encoder, stopped, timeout_seconds=0.1) as app:

        async def main() -> None:
            first = asyncio.create_task(ask(app, whole()))
            await until(stopped.begun.is_set)
            answers = await asyncio.gather(first, *(ask(app, whole()) for _ in range(3)))
            assert {status for status, _, _ in answers} == {504}
            assert "no answer within 0.1 s" in answers[0][1]["error"]
            assert app.state.desk.models.all["encoder"].batcher.waiting_tokens == 0

        asyncio.run(main())
    # The one that had been begun when the time of all was up.
    assert stopped.num_read == 1


def test_a_body_that_does_not_arrive_is_not_waited_for(encoder) -> None:
    app = application({"encoder": encoder}, Settings(timeout_seconds=0.05))

    async def never() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    status, answer, headers = asyncio.run(ask(app, never))
    assert (status, answer["error"]) == (408, "the body did not arrive within 0.05 s")
    assert headers[b"connection"] == b"close"


@pytest.mark.parametrize("expecting", [True, False])
def test_the_body_of_who_is_refused_is_not_invited_nor_long_waited_for(
    encoder, expecting: bool
) -> None:
    app = application({"encoder": encoder}, Settings(api_keys=frozenset({"a-key-of-a-server"})))
    num_invited = 0

    async def never() -> dict[str, Any]:
        nonlocal num_invited
        num_invited += 1
        await asyncio.sleep(60)
        return {}

    async def main() -> Any:
        async with asyncio.timeout(10):
            stated = [("content-length", "10")]
            return await ask(app, never, stated + [("expect", "100-continue")] * expecting)

    status, _, headers = asyncio.run(main())
    assert (status, headers[b"connection"]) == (401, b"close")
    assert num_invited == (0 if expecting else 1)


def test_who_is_refused_and_has_sent_all_is_kept(encoder) -> None:
    app = application({"encoder": encoder}, Settings(api_keys=frozenset({"a-key-of-a-server"})))
    status, _, headers = asyncio.run(ask(app, whole()))
    assert status == 401
    assert b"connection" not in headers


def test_who_leaves_in_the_middle_of_a_body_is_forgotten(encoder) -> None:
    app = application({"encoder": encoder}, Settings())
    messages = iter(
        [
            {"type": "http.request", "body": ASKED[:5], "more_body": True},
            {"type": "http.disconnect"},
        ]
    )

    async def receive() -> dict[str, Any]:
        return next(messages)

    assert asyncio.run(ask(app, receive))[0] == 499
    assert app.state.gate.num_inside == 0


@pytest.mark.parametrize("stated", [True, False])
def test_no_more_of_a_body_is_taken_than_is_allowed(encoder, stated: bool) -> None:
    app = application({"encoder": encoder}, Settings(body_bytes=4096))
    num_read = 0

    async def endless() -> dict[str, Any]:
        nonlocal num_read
        num_read += 1
        return {"type": "http.request", "body": b" " * 1024, "more_body": True}

    headers = [("content-length", "10000000")] if stated else []
    status, answer, told = asyncio.run(ask(app, endless, headers))
    assert (status, told[b"connection"]) == (413, b"close")
    assert answer["error"].startswith("the body has more than 4096 bytes")
    assert num_read == 16 * 4
    assert app.state.gate.num_inside == 0


def test_who_does_not_read_its_answer_is_not_waited_for(encoder) -> None:
    app = application({"encoder": encoder}, Settings(timeout_seconds=0.05))

    async def never(message: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    asyncio.run(app(SCOPE, whole(), never))
    assert app.state.gate.num_inside == 0


def test_beyond_the_bound_come_429s_that_say_when_to_come_again(encoder, stopped) -> None:
    with stopping(encoder, stopped, queue_tokens=12) as app:

        async def main() -> None:
            first = asyncio.create_task(ask(app, whole()))
            await until(stopped.begun.is_set)
            # Each has four tokens: three of them fit.
            more = [asyncio.create_task(ask(app, whole())) for _ in range(8)]
            await until(lambda: sum(task.done() for task in more) == 5)
            refused = [task.result() for task in more if task.done()]
            assert {status for status, _, _ in refused} == {429}
            assert all(int(headers[b"retry-after"]) >= 1 for _, _, headers in refused)
            stopped.go.set()
            answers = await asyncio.gather(first, *more)
            assert [status for status, _, _ in answers].count(200) == 4

        asyncio.run(main())


def test_nobody_is_sent_away_for_longer_than_anything_waits(
    encoder, stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batcher, "_seconds_until_empty", lambda _: 1217)
    with stopping(encoder, stopped, queue_tokens=4, timeout_seconds=20) as app:

        async def main() -> None:
            asked = [asyncio.create_task(ask(app, whole()))]
            await until(stopped.begun.is_set)
            asked += [asyncio.create_task(ask(app, whole())) for _ in range(2)]
            await until(lambda: any(task.done() for task in asked))
            (status, _, headers) = next(task.result() for task in asked if task.done())
            assert (status, headers[b"retry-after"]) == (429, b"20")
            stopped.go.set()
            await asyncio.gather(*asked)

        asyncio.run(main())


def test_no_more_requests_are_let_in_than_may_be_inside(encoder, stopped) -> None:
    with stopping(encoder, stopped, num_requests=2) as app:

        async def main() -> None:
            inside = [asyncio.create_task(ask(app, whole())) for _ in range(2)]
            await until(stopped.begun.is_set)
            assert (await ask(app, whole()))[0] == 429
            stopped.go.set()
            assert [(await task)[0] for task in inside] == [200, 200]
            assert (await ask(app, whole()))[0] == 200

        asyncio.run(main())


def test_a_closed_gate_lets_finish_and_lets_nobody_in(encoder, stopped) -> None:
    with stopping(encoder, stopped) as app:

        async def main() -> None:
            inside = asyncio.create_task(ask(app, whole()))
            await until(stopped.begun.is_set)
            app.state.gate.close()
            status, answer, headers = await ask(app, whole())
            assert status == 503
            assert answer["error"] == "the server is stopping: ask another"
            assert headers[b"retry-after"] == b"1"
            stopped.go.set()
            assert (await inside)[0] == 200

        asyncio.run(main())
    assert app.state.gate.num_inside == 0
