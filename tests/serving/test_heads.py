"""Nothing without end is collected, and a head that does not come is not waited for."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from fastapi import FastAPI

from bertwright.serving import heads
from bertwright.serving.door import Gate
from bertwright.serving.server import Draining, address_of, listen

SECONDS = 1.0

MUCH = 2**24
"""Bytes: more than the system holds for who does not read them."""

WHOLE = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A connection to a server in a thread, which waits a second for a head."""
    monkeypatch.setattr(heads, "HEAD_SECONDS", SECONDS)
    app = FastAPI()
    app.state.gate = Gate(8)
    app.add_api_route("/health", lambda: {"status": "ok"})
    app.add_api_route("/taken", lambda: {"status": "ok"}, methods=["POST"])
    with listen("127.0.0.1", 0, 30) as listening:
        thread = threading.Thread(target=Draining(app, 30).run, args=([listening],))
        host, port = address_of(listening).removeprefix("http://").split(":")
        thread.start()
        with socket.create_connection((host, int(port)), timeout=10) as made:
            yield made
        app.state.gate.close()
        thread.join(20)


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\na: "])
@pytest.mark.parametrize("before", [b"", WHOLE])
def test_a_head_without_end_is_cut_off(
    connection: socket.socket, begin: bytes, before: bytes
) -> None:
    connection.sendall(before + begin)
    with pytest.raises(ConnectionError):
        for _ in range(MUCH // 2**16):
            connection.sendall(b"a" * 2**16)


def test_who_sends_too_large_a_head_and_then_listens_is_told(connection: socket.socket) -> None:
    connection.sendall(b"GET /")
    connection.settimeout(0.3)
    answer = b""
    while not answer:
        connection.sendall(b"a" * 2**15)
        with suppress(TimeoutError):
            answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"the head of the request is too large" in answer


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n", WHOLE + b"GET / HTTP/1.1\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(
    connection: socket.socket, sent: bytes
) -> None:
    began = time.monotonic()
    connection.sendall(sent)
    while connection.recv(1000):
        pass
    assert SECONDS * 0.9 < time.monotonic() - began < SECONDS + 3


def test_a_body_counts_for_neither_of_the_heads_around_it(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "HEAD_BYTES", 1000)
    body = b"a" * 5000  # with the heads around it in one packet
    asked = b"POST /taken HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for part in (asked[:20], asked[20:] + asked[:20], asked[20:]):
        connection.sendall(part)
        time.sleep(0.1)
    found = b""
    while len(re.findall(rb'{"status":"ok"}', found)) < 2:
        part = connection.recv(10_000)
        assert part
        found += part


def test_heads_and_bodies_that_end_are_answered(connection: socket.socket) -> None:
    head = b"POST /taken HTTP/1.1\r\nHost: x\r\nA: %s\r\nContent-Length: %d\r\n\r\n"
    body = b"a" * 3 * heads.HEAD_BYTES
    for _ in range(5):
        asked = head % (b"b" * (heads.HEAD_BYTES // 2), len(body)) + body
        # In pieces of which some hold the end of a body and the beginning of a head.
        for begin in range(0, 2 * len(asked), 50_000):
            connection.sendall((asked * 2)[begin : begin + 50_000])
        found = b""
        while len(re.findall(rb'{"status":"ok"}', found)) < 2:
            part = connection.recv(10_000)
            assert part
            found += part
        # Longer than the first head may take, and less than a connection is kept for the next.
        time.sleep(SECONDS / 4)


CHUNKED = b"POST /taken HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

ENDLESS = {
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * 1000),
    "one trailer": (CHUNKED + b"0\r\na: ", b"b" * 2**16),
    "chunk extension": (CHUNKED + b"1;a=", b"b" * 2**16),
    "chunk length": (CHUNKED, b"0" * 2**16),
    "tiny chunks": (CHUNKED, b"1\r\na\r\n" * 1000),
    "headers": (b"GET /health HTTP/1.1\r\n", b"a:\r\n" * 1000),
    "requests in advance": (b"", WHOLE * 1000),
    "a body that is not read": (
        WHOLE[:-2] + CHUNKED.partition(b"x\r\n")[2],
        b"ff\r\n%s\r\n" % (b"a" * 255) * 100,
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_nothing_without_end_is_collected(connection: socket.socket, case: str) -> None:
    begin, more = ENDLESS[case]
    connection.sendall(begin)
    with pytest.raises(ConnectionError):
        for _ in range(MUCH // len(more)):
            connection.sendall(more)


def test_an_answered_request_whose_body_does_not_end_is_not_waited_for(
    connection: socket.socket,
) -> None:
    began = time.monotonic()
    connection.sendall(ENDLESS["a body that is not read"][0])
    connection.settimeout(0.1)
    with suppress(ConnectionError):
        while True:
            connection.sendall(b"1\r\na\r\n")
            with suppress(TimeoutError):
                if not connection.recv(1000):
                    break
    assert time.monotonic() - began < SECONDS + 3


def test_chunks_trailers_and_some_requests_in_advance_are_answered(
    connection: socket.socket,
) -> None:
    chunks = b"".join(b"64;a=b\r\n%s\r\n" % (b"a" * 100) for _ in range(2000))
    connection.sendall(CHUNKED + chunks + b"0\r\nExpires: 0\r\n\r\n")
    connection.sendall(WHOLE * 10)
    found = b""
    while len(re.findall(rb'{"status":"ok"}', found)) < 11:
        part = connection.recv(10_000)
        assert part
        found += part
