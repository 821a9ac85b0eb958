"""Connections within limits: of heads, of trailers and chunks, and of requests in advance.

Uvicorn collects all of these without any limit, and before a key is looked at. A body is counted
where it is read (:mod:`bertwright.serving.door`); here all is counted that is no body.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 2**16
"""Of a head, behind the packet in which it begins: that may hold the end of a body, too. As much
may stand around the chunks of a body, and once more as the body has."""

UNREAD_BYTES = 2**20
"""Of a body that is still sent when its request has been answered."""

HEADERS = 256
"""Of one head; those behind a body are not kept."""

IN_ADVANCE = 16
"""Requests of one connection that wait for the answer to an earlier one."""

HEAD_SECONDS = 10.0
"""Until a head must be whole, and the first one of a connection begun."""

_SENTENCE = b'{"error":"the head of the request is too large","error_type":"too_large"}'

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
) % (len(_SENTENCE), _SENTENCE)


class LimitedHeads(HttpToolsProtocol):
    """A connection that is closed on heads, trailers and chunks without end, and on too many
    requests at once."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = self._in_body = self._begins = self._too_many = False
        self._num_bytes = self._num_of_bodies = self._num_headers = 0
        self._body_bytes = 0
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
        self._num_headers = self._body_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of a head; one behind a body is for nobody."""
        self._num_headers += 1
        if self._num_headers > HEADERS:
            self._too_many = True
        elif self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head, self._in_body = False, True
        self._stop_waiting()
        if len(self.pipeline) >= IN_ADVANCE:
            self._too_many = True
        if not self._too_many:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count what is no head."""
        self._num_of_bodies += len(body)
        self._body_bytes += len(body)
        if not self._too_many:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole."""
        self._in_body = False
        self._stop_waiting()
        if not self._too_many:
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Most requests come whole: only of others is it counted how large they are."""
        self._begins, self._num_of_bodies = False, 0
        super().data_received(data)
        if self.transport.is_closing():
            return
        unread = self._in_body and self._is_answered
        if (self._in_head or unread) and self._patience is None:
            self._wait()
        self._num_bytes = 0 if self._begins else self._num_bytes + len(data) - self._num_of_bodies
        if self._too_many or self._num_bytes > HEAD_BYTES + self._body_bytes:
            if not self._in_body or not self._is_answered:
                self.transport.write(TOO_LARGE)
            self.transport.close()
        elif unread and self._body_bytes > UNREAD_BYTES:
            self.transport.close()

    @property
    def _is_answered(self) -> bool:
        """Whether the answer to the last request has begun."""
        cycle: Any = self.cycle
        return cycle is not None and cycle.response_started

    def _wait(self) -> None:
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
