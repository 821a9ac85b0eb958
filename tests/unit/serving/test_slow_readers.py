"""Clients that do not read their response."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

SIZE = 2**25
"""Bytes of a response, more than any system buffers."""

LARGE = f"""
from fastapi import FastAPI, Response
from bertwright.serving.middleware import AdmissionControl, ServingMiddleware
from bertwright.serving.metrics import Metrics
from bertwright.serving.server import listen, run_server, server_address
from bertwright.serving.settings import ServingSettings

app = FastAPI()
app.state.admission = AdmissionControl(8)
app.add_middleware(
    ServingMiddleware,
    admission=app.state.admission,
    settings=ServingSettings(request_timeout_seconds=0.5),
    metrics=Metrics(),
)
app.add_api_route("/health", lambda: Response(bytes({SIZE})))
with listen("127.0.0.1", 0, 0.5) as listening:
    print(server_address(listening), flush=True)
    run_server(app, listening, 0.5)
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", LARGE], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def send_requests(server: subprocess.Popen[str], num_requests: int) -> socket.socket:
    """Send requests and return the connection after the start of the first response."""
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


@pytest.mark.full
@pytest.mark.parametrize("num_requests", [1, 2])
def test_the_server_stops_with_an_unread_response(
    server: subprocess.Popen[str], num_requests: int
) -> None:
    with send_requests(server, num_requests):
        server.send_signal(signal.SIGTERM)
        assert server.wait(15) == 0


def test_a_response_is_complete_though_the_server_stops(
    server: subprocess.Popen[str],
) -> None:
    with send_requests(server, 1) as connection:
        server.send_signal(signal.SIGTERM)
        num_read = 0
        while part := connection.recv(2**20):
            num_read += len(part)
        assert num_read > SIZE
    assert server.wait(15) == 0


@pytest.mark.linux
@pytest.mark.parametrize("num_requests", [1, pytest.param(2, marks=pytest.mark.full)])
def test_an_unread_response_is_dropped(server: subprocess.Popen[str], num_requests: int) -> None:
    with send_requests(server, num_requests) as connection:
        time.sleep(2)
        num_read = 0
        with pytest.raises(ConnectionResetError):
            while part := connection.recv(2**20):
                num_read += len(part)
        assert num_read < SIZE
