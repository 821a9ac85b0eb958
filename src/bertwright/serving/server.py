"""The server: a socket, and an end that loses nothing."""

import logging
import math
import os
import socket
import sys
import time
from threading import Thread
from types import FrameType

import uvicorn
from fastapi import FastAPI

from bertwright.errors import UserError
from bertwright.machine.process import give_memory_back
from bertwright.serving.door import Gate
from bertwright.serving.heads import LimitedHeads

BACKLOG = 2048
"""Connections that the system holds until they are taken."""

TIDY_SECONDS = 5.0
"""How often freed memory is given back: a server reads batches of ever other shapes."""

QUIET_TICKS = 2
"""How often nobody must have been inside before connections are cut: what had arrived before the
signal has been read by then."""


def listen(host: str, port: int, unread_seconds: float) -> socket.socket:
    """A socket that listens; port 0 is any that is free. Where the system can, it cuts a connection
    of which nothing was read for so long: an answer waits in memory until it is read.

    Errors: UserError for an address that is none, or is taken.
    """
    listening: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # Only where the protocol is stated does asyncio send small packets at once.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":
            milliseconds = math.ceil(1000 * unread_seconds)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listening.bind(address)
        listening.listen(BACKLOG)
        return listening
    except (OSError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        why = error.strerror if isinstance(error, OSError) else "no name of a machine"
        raise UserError(f"nobody can listen at {host}:{port} ({why}): choose another") from error


def address_of(listening: socket.socket) -> str:
    """Where a socket listens, as one types it into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: FastAPI, listening: socket.socket, unread_seconds: float) -> None:
    """Answer requests until a signal asks to stop, and then until everything taken is answered;
    for so long the last answers may be read."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    Thread(target=_tidy, name="tidy", daemon=True).start()
    Draining(app, unread_seconds).run([listening])


def _tidy() -> None:
    while True:
        time.sleep(TIDY_SECONDS)
        give_memory_back()


class Draining(uvicorn.Server):
    """Uvicorn closes connections when it is asked to stop, though a request may just be on its way
    through one. This closes the gate first, and connections when nobody is inside."""

    def __init__(self, app: FastAPI, unread_seconds: float) -> None:
        config = uvicorn.Config(
            app,
            http=LimitedHeads,
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            ws="none",
            timeout_graceful_shutdown=math.ceil(unread_seconds),
        )
        super().__init__(config)
        self._gate: Gate = app.state.gate
        self._num_quiet = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal closes the gate, the second one ends the process, whatever computes."""
        if self._gate.closed:
            # Not by the signal itself, to which the first process of a container is deaf.
            os._exit(128 + sig)
        self._gate.close()

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop now; asked ten times a second."""
        quiet = self._gate.closed and not self._gate.num_inside
        self._num_quiet = self._num_quiet + 1 if quiet else 0
        return await super().on_tick(counter) or self._num_quiet > QUIET_TICKS
