"""The HTTP server with a graceful shutdown."""

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

from bertwright.core.errors import UserError
from bertwright.runtime.process import release_free_memory
from bertwright.serving.header_limits import HeaderLimitProtocol
from bertwright.serving.middleware import AdmissionControl

BACKLOG = 2048
"""Maximum number of connections waiting to be accepted."""

MEMORY_TRIM_SECONDS = 5.0
"""Seconds between releases of freed memory, which batches of varying shape fragment."""

IDLE_TICKS = 2
"""Idle ticks before connections are closed on shutdown; by then earlier requests have been read."""


def listen(host: str, port: int, unread_timeout_seconds: float) -> socket.socket:
    """Open a listening socket; port 0 chooses a free port.

    On Linux, a connection is closed if the client reads nothing for ``unread_timeout_seconds``,
    because responses stay in memory until they are read.

    Errors: UserError for an address that is invalid or in use.
    """
    listener: socket.socket | None = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        # asyncio sets TCP_NODELAY only if the protocol is set explicitly.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":
            milliseconds = math.ceil(1000 * unread_timeout_seconds)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind(address)
        listener.listen(BACKLOG)
        return listener
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        reason = error.strerror if isinstance(error, OSError) else "invalid host name"
        raise UserError(f"cannot listen on {host}:{port} ({reason}): choose another") from error


def server_address(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(app: FastAPI, listener: socket.socket, unread_timeout_seconds: float) -> None:
    """Serve until a signal, then finish all accepted requests and return.

    Clients have ``unread_timeout_seconds`` to read the last responses.
    """
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    Thread(target=_trim_memory, name="tidy", daemon=True).start()
    DrainingServer(app, unread_timeout_seconds).run([listener])


def _trim_memory() -> None:
    while True:
        time.sleep(MEMORY_TRIM_SECONDS)
        release_free_memory()


class DrainingServer(uvicorn.Server):
    """A Uvicorn server that rejects new requests after a signal and stops when it is idle.

    Uvicorn itself would close connections whose requests are still arriving.
    """

    def __init__(self, app: FastAPI, unread_timeout_seconds: float) -> None:
        config = uvicorn.Config(
            app,
            http=HeaderLimitProtocol,
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            ws="none",
            timeout_graceful_shutdown=math.ceil(unread_timeout_seconds),
        )
        super().__init__(config)
        self._admission: AdmissionControl = app.state.admission
        self._num_idle_ticks = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop admitting requests on the first signal; exit immediately on the second."""
        if self._admission.is_closed:
            # Not with the default handler, which process 1 of a container does not have.
            os._exit(128 + sig)
        self._admission.close()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop now; called ten times a second."""
        is_idle = self._admission.is_closed and not self._admission.num_active
        self._num_idle_ticks = self._num_idle_ticks + 1 if is_idle else 0
        return await super().on_tick(counter) or self._num_idle_ticks > IDLE_TICKS
