"""Who asks and does not read holds neither the answer nor the end of the server."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

SIZE = 2**25
"""Bytes of an answer, which no system holds for its reader."""

LARGE = f"""
from fastapi import FastAPI, Response
from bertwright.serving.door import Door, Gate
from bertwright.serving.metrics import Metrics
from bertwright.serving.server import address_of, listen, run
from bertwright.serving.settings import Settings

app = FastAPI()
app.state.gate = Gate(8)
app.add_middleware(
    Door, gate=app.state.gate, settings=Settings(timeout_seconds=0.5), metrics=Metrics()
)
app.add_api_route("/health", lambda: Response(bytes({SIZE})))
with listen("127.0.0.1", 0, 0.5) as listening:
    print(address_of(listening), flush=True)
    run(app, listening, 0.5)
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", LARGE], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def asking(server: subprocess.Popen[str], num_requests: int) -> socket.socket:
    """A connection that has asked so often and has seen an answer begin."""
    assert server.stdout is not None
    host, port = server.stdout.readline().strip().removeprefix("http://").split(":")
    connection = socket.socket()
    connection.settimeout(20)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    for _ in range(num_requests):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert connection.recv(15) == b"HTTP/1.1 200 OK"
    return connection


@pytest.mark.parametrize("num_requests", [1, 2])
def test_a_server_ends_though_an_answer_is_not_read(
    server: subprocess.Popen[str], num_requests: int
) -> None:
    with asking(server, num_requests):
        server.send_signal(signal.SIGTERM)
        assert server.wait(15) == 0


def test_an_answer_that_is_read_is_whole_though_the_server_ends(
    server: subprocess.Popen[str],
) -> None:
    with asking(server, 1) as connection:
        server.send_signal(signal.SIGTERM)
        num_read = 0
        while part := connection.recv(2**20):
            num_read += len(part)
        assert num_read > SIZE
    assert server.wait(15) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux cuts such connections by itself")
@pytest.mark.parametrize("num_requests", [1, 2])
def test_an_answer_that_is_not_read_is_let_go(
    server: subprocess.Popen[str], num_requests: int
) -> None:
    with asking(server, num_requests) as connection:
        time.sleep(2)
        num_read = 0
        with pytest.raises(ConnectionResetError):
            while part := connection.recv(2**20):
                num_read += len(part)
        assert num_read < SIZE
