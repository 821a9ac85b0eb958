"""Limits on headers, trailers, chunks and pipelined requests."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from fastapi import FastAPI

from bertwright.serving import header_limits
from bertwright.serving.middleware import AdmissionControl
from bertwright.serving.server import DrainingServer, listen, server_address

SECONDS = 1.0

NUM_BYTES = 2**24
"""More bytes than the system buffers for a connection."""

REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A connection to a server in a thread, with a header timeout of one second."""
    monkeypatch.setattr(header_limits, "HEADER_TIMEOUT_SECONDS", SECONDS)
    app = FastAPI()
    app.state.admission = AdmissionControl(8)
    app.add_api_route("/health", lambda: {"status": "ok"})
    app.add_api_route("/post", lambda: {"status": "ok"}, methods=["POST"])
    with listen("127.0.0.1", 0, 30) as listening:
        thread = threading.Thread(target=DrainingServer(app, 30).run, args=([listening],))
        host, port = server_address(listening).removeprefix("http://").split(":")
        thread.start()
        with socket.create_connection((host, int(port)), timeout=10) as client:
            yield client
        app.state.admission.close()
        thread.join(20)


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\na: "])
@pytest.mark.parametrize("earlier_request", [b"", REQUEST])
def test_endless_headers_close_the_connection(
    connection: socket.socket, begin: bytes, earlier_request: bytes
) -> None:
    connection.sendall(earlier_request + begin)
    with pytest.raises(ConnectionError):
        for _ in range(NUM_BYTES // 2**16):
            connection.sendall(b"a" * 2**16)


def test_too_large_headers_are_reported(connection: socket.socket) -> None:
    connection.sendall(b"GET /")
    connection.settimeout(0.3)
    response = b""
    while not response:
        connection.sendall(b"a" * 2**15)
        with suppress(TimeoutError):
            response = connection.recv(1000)
    assert response.startswith(b"HTTP/1.1 431 ")
    assert b"the request headers are too large" in response


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n", REQUEST + b"GET / HTTP/1.1\r\n"])
def test_incomplete_headers_time_out(connection: socket.socket, sent: bytes) -> None:
    start = time.monotonic()
    connection.sendall(sent)
    while connection.recv(1000):
        pass
    assert SECONDS * 0.9 < time.monotonic() - start < SECONDS + 3


def test_a_body_does_not_count_as_headers(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_limits, "MAX_HEADER_BYTES", 1000)
    body = b"a" * 5000  # in one packet with the headers around it
    request = b"POST /post HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for part in (request[:20], request[20:] + request[:20], request[20:]):
        connection.sendall(part)
        time.sleep(0.1)
    received = b""
    while len(re.findall(rb'{"status":"ok"}', received)) < 2:
        part = connection.recv(10_000)
        assert part
        received += part


def test_large_headers_and_bodies_within_limits_are_accepted(connection: socket.socket) -> None:
    head = b"POST /post HTTP/1.1\r\nHost: x\r\nA: %s\r\nContent-Length: %d\r\n\r\n"
    body = b"a" * 3 * header_limits.MAX_HEADER_BYTES
    for _ in range(5):
        request = head % (b"b" * (header_limits.MAX_HEADER_BYTES // 2), len(body)) + body
        # In packets; some hold the end of a body and the start of headers.
        for begin in range(0, 2 * len(request), 50_000):
            connection.sendall((request * 2)[begin : begin + 50_000])
        received = b""
        while len(re.findall(rb'{"status":"ok"}', received)) < 2:
            part = connection.recv(10_000)
            assert part
            received += part
        # In total longer than the header timeout, but shorter than the keep-alive timeout.
        time.sleep(SECONDS / 4)


CHUNKED = b"POST /post HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

ENDLESS = {
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * 1000),
    "one trailer": (CHUNKED + b"0\r\na: ", b"b" * 2**16),
    "chunk extension": (CHUNKED + b"1;a=", b"b" * 2**16),
    "chunk length": (CHUNKED, b"0" * 2**16),
    "tiny chunks": (CHUNKED, b"1\r\na\r\n" * 1000),
    "headers": (b"GET /health HTTP/1.1\r\n", b"a:\r\n" * 1000),
    "pipelined requests": (b"", REQUEST * 1000),
    "unread body": (
        REQUEST[:-2] + CHUNKED.partition(b"x\r\n")[2],
        b"ff\r\n%s\r\n" % (b"a" * 255) * 100,
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_endless_input_closes_the_connection(connection: socket.socket, case: str) -> None:
    begin, more = ENDLESS[case]
    connection.sendall(begin)
    with pytest.raises(ConnectionError):
        for _ in range(NUM_BYTES // len(more)):
            connection.sendall(more)


def test_an_endless_body_after_the_response_times_out(
    connection: socket.socket,
) -> None:
    start = time.monotonic()
    connection.sendall(ENDLESS["unread body"][0])
    connection.settimeout(0.1)
    with suppress(ConnectionError):
        while True:
            connection.sendall(b"1\r\na\r\n")
            with suppress(TimeoutError):
                if not connection.recv(1000):
                    break
    assert time.monotonic() - start < SECONDS + 3


def test_chunks_trailers_and_pipelined_requests_are_accepted(
    connection: socket.socket,
) -> None:
    chunks = b"".join(b"64;a=b\r\n%s\r\n" % (b"a" * 100) for _ in range(2000))
    connection.sendall(CHUNKED + chunks + b"0\r\nExpires: 0\r\n\r\n")
    connection.sendall(REQUEST * 10)
    received = b""
    while len(re.findall(rb'{"status":"ok"}', received)) < 11:
        part = connection.recv(10_000)
        assert part
        received += part
