"""Limits on a connection's headers, trailers, chunk overhead and pipelined requests.

Uvicorn buffers all of these without limit, before any authentication. Limits on bodies are in
:mod:`bertwright.serving.middleware`.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES = 2**16
"""Maximum size of headers in bytes, not counting the packet in which they start.

That packet may also contain the end of a body. The overhead of chunks may have this size plus the
size of the body.
"""

MAX_UNREAD_BODY_BYTES = 2**20
"""Maximum size in bytes of a body that is still arriving after the response."""

MAX_HEADERS = 256
"""Maximum number of headers per request, trailers included."""

MAX_PIPELINED_REQUESTS = 16
"""Maximum number of requests on one connection that wait for an earlier response."""

HEADER_TIMEOUT_SECONDS = 10.0
"""Time limit for receiving complete headers, including the first headers of a connection."""

_ERROR_BODY = b'{"error":"the request headers are too large","error_type":"too_large"}'

TOO_LARGE_RESPONSE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
) % (len(_ERROR_BODY), _ERROR_BODY)


class HeaderLimitProtocol(HttpToolsProtocol):
    """A connection that is closed when it exceeds a limit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_headers = self._in_body = self._message_began = self._limit_exceeded = False
        self._num_header_bytes = self._packet_body_bytes = self._num_headers = 0
        self._message_body_bytes = 0
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request."""
        super().connection_made(transport)
        self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._cancel_timeout()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Start counting headers."""
        self._in_headers = self._message_began = True
        self._num_headers = self._message_body_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; ignore trailers."""
        self._num_headers += 1
        if self._num_headers > MAX_HEADERS:
            self._limit_exceeded = True
        elif self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the timeout and count pipelined requests."""
        self._in_headers, self._in_body = False, True
        self._cancel_timeout()
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            self._limit_exceeded = True
        if not self._limit_exceeded:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count body bytes."""
        self._packet_body_bytes += len(body)
        self._message_body_bytes += len(body)
        if not self._limit_exceeded:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timeout of the body."""
        self._in_body = False
        self._cancel_timeout()
        if not self._limit_exceeded:
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Parse a packet and enforce the limits.

        Most requests arrive in one packet, so only further packets are counted.
        """
        self._message_began, self._packet_body_bytes = False, 0
        super().data_received(data)
        if self.transport.is_closing():
            return
        unread = self._in_body and self._response_started
        if (self._in_headers or unread) and self._timeout is None:
            self._start_timeout()
        self._num_header_bytes = (
            0
            if self._message_began
            else self._num_header_bytes + len(data) - self._packet_body_bytes
        )
        if (
            self._limit_exceeded
            or self._num_header_bytes > MAX_HEADER_BYTES + self._message_body_bytes
        ):
            if not self._in_body or not self._response_started:
                self.transport.write(TOO_LARGE_RESPONSE)
            self.transport.close()
        elif unread and self._message_body_bytes > MAX_UNREAD_BODY_BYTES:
            self.transport.close()

    @property
    def _response_started(self) -> bool:
        """Return whether the response to the last request has started."""
        cycle: Any = self.cycle
        return cycle is not None and cycle.response_started

    def _start_timeout(self) -> None:
        self._timeout = self.loop.call_later(HEADER_TIMEOUT_SECONDS, self.transport.close)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
