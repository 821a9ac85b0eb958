"""The heads of requests, within limits of size and of time: uvicorn collects them without any, and
before anybody is asked for a key."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 2**16
"""Of a head, behind the packet in which it begins: that may hold the end of a body, too."""

HEAD_SECONDS = 10.0
"""Until a head must be whole, and the first one of a connection begun."""

_SENTENCE = b'{"error":"the head of the request is too large","error_type":"too_large"}'

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
) % (len(_SENTENCE), _SENTENCE)


class LimitedHeads(HttpToolsProtocol):
    """A connection that is closed on heads without end."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._in_head = self._begins = False
        self._num_bytes = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Who says nothing is not waited for either."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = self._begins = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It is whole."""
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Most heads come whole: only of others is it noted when and how large they are."""
        self._begins = False
        super().data_received(data)
        if not self._in_head:
            return
        if self._patience is None:
            self._wait()
        self._num_bytes = 0 if self._begins else self._num_bytes + len(data)
        if self._num_bytes > HEAD_BYTES:
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def _wait(self) -> None:
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
