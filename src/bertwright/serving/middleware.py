"""Middleware for admission, authentication, body limits, metrics and errors.

It runs outside of the framework, so that no body is read before the request is accepted, and every
error response is a single sentence.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bertwright.serving.errors import ApiError, disconnect_error, error_response, shutdown_error
from bertwright.serving.metrics import Metrics
from bertwright.serving.page_files import PAGE_FILES
from bertwright.serving.settings import ServingSettings

LOGGER = logging.getLogger("bertwright.serving")

PUBLIC_PATHS = frozenset({"/health", "/openapi.json", *PAGE_FILES})
"""Paths that can be read without a key; they reveal nothing about the models."""

SAFE_METHODS = frozenset({"GET"})
"""Methods that need no key on public paths, HEAD as GET; other methods may reach an endpoint."""

MONITORING_PATHS = frozenset({"/health", "/metrics"})
"""Paths exempt from the limit on active requests."""


MAX_DISCARD_FACTOR = 16
"""Maximum number of bytes to discard of a rejected body, relative to the body limit."""

IDLE_BODY_SECONDS = 1.0
"""Seconds without new bytes after which the rest of a rejected body is no longer awaited."""


class AdmissionControl:
    """Counts active requests; rejects new ones at the limit or after it is closed."""

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self._is_closed = False
        self.num_active = 0

    def close(self) -> None:
        """Reject all further requests."""
        self._is_closed = True

    @property
    def is_closed(self) -> bool:
        """Return whether new requests are rejected."""
        return self._is_closed

    def admit(self, path: str) -> None:
        """Count a request; raise ApiError when closed or at the limit."""
        if self._is_closed:
            raise shutdown_error()
        if self.num_active >= self._max_requests and path not in MONITORING_PATHS:
            raise ApiError(429, f"{self._max_requests} requests are active: retry in 1 s", 1)
        self.num_active += 1

    def release(self) -> None:
        """Stop counting an admitted request."""
        self.num_active -= 1


class ServingMiddleware:
    """The outermost layer of the application."""

    def __init__(
        self, app: ASGIApp, admission: AdmissionControl, settings: ServingSettings, metrics: Metrics
    ) -> None:
        self._app, self._admission = app, admission
        self._settings, self._metrics = settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # The server sends no body for HEAD, whatever the application returns.
            scope = {**scope, "method": "GET"}
        start = time.perf_counter()
        body = RequestBody(scope, receive, self._settings)
        sender = ResponseSender(send, self._settings.request_timeout_seconds)
        try:
            await self._handle(scope, body, sender)
        except HTTPException as error:
            await sender.send_error(scope, await body.drain(error))
        except ConnectionError:
            LOGGER.info("a client did not read its response")
        except Exception:
            error_id = secrets.token_hex(8)
            LOGGER.exception("internal error %s", error_id)
            await sender.send_error(scope, HTTPException(500, f"internal error {error_id}"))
        finally:
            seconds = time.perf_counter() - start
            self._metrics.record_request(_endpoint_path(scope), sender.status, seconds)

    async def _handle(self, scope: Scope, body: "RequestBody", sender: "ResponseSender") -> None:
        self._admission.admit(scope["path"])
        try:
            if scope["path"] not in PUBLIC_PATHS or scope["method"] not in SAFE_METHODS:
                require_api_key(body.headers, self._settings.api_keys)
            body.require_content_length()
            await self._app(scope, body.receive, sender)
        finally:
            self._admission.release()


class RequestBody:
    """The body of a request, limited in size and time."""

    def __init__(self, scope: Scope, receive: Receive, settings: ServingSettings) -> None:
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive
        self._max_bytes = settings.max_body_bytes
        self._timeout_seconds = settings.request_timeout_seconds
        self._deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        self._num_bytes = 0
        self._is_complete = False

    def require_content_length(self) -> None:
        """Raise ApiError if the Content-Length exceeds the limit."""
        length = self.headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._max_bytes:
            raise self._too_large_error()

    async def receive(self) -> Message:
        """Return the next part; raise ApiError on a limit or a disconnect."""
        if self._is_complete:
            return await self._receive()
        try:
            message = await self._receive_part(self._deadline)
        except TimeoutError:
            error = ApiError(408, f"the body did not arrive within {self._timeout_seconds:g} s")
            raise await self.drain(error) from None
        if message["type"] == "http.disconnect":
            raise disconnect_error()
        if self._num_bytes > self._max_bytes:
            raise await self.drain(self._too_large_error())
        return message

    async def drain(self, error: HTTPException) -> HTTPException:
        """Discard the rest of the body, within limits; return the error to send.

        A client that is still sending when the connection is closed would not see the response. If
        the body is still incomplete, the connection is closed, so that the rest is not read as a
        request.
        """
        # A client that sent "Expect: 100-continue" waits for permission before it sends the body.
        if self._num_bytes or b"expect" not in self.headers:
            with suppress(TimeoutError):
                while (
                    not self._is_complete and self._num_bytes < MAX_DISCARD_FACTOR * self._max_bytes
                ):
                    idle_deadline = asyncio.get_running_loop().time() + IDLE_BODY_SECONDS
                    await self._receive_part(min(idle_deadline, self._deadline))
        if not self._is_complete:
            error.headers = {**(error.headers or {}), "Connection": "close"}
        return error

    async def _receive_part(self, deadline: float) -> Message:
        async with asyncio.timeout_at(deadline):
            message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        return message

    def _too_large_error(self) -> ApiError:
        return ApiError(
            413, f"the body has more than {self._max_bytes} bytes: send less per request"
        )


class ResponseSender:
    """Sends the response within a time limit, and records its status."""

    def __init__(self, send: Send, timeout_seconds: float) -> None:
        self._send, self._timeout_seconds = send, timeout_seconds
        self._has_started = False
        self.status = 500

    async def __call__(self, message: Message) -> None:
        """Send a message; raise ConnectionError if the client does not read it."""
        if message["type"] == "http.response.start":
            self._has_started, self.status = True, message["status"]
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._send(message)
        except TimeoutError:
            raise ConnectionAbortedError from None

    async def send_error(self, scope: Scope, error: HTTPException) -> None:
        """Send an error response, unless a response has started."""
        if not self._has_started:
            await error_response(scope["path"], error)(scope, _receive_disconnect, self)


async def _receive_disconnect() -> Message:
    """Receive a disconnect: error responses do not read the request."""
    return {"type": "http.disconnect"}


def require_api_key(headers: Mapping[bytes, bytes], keys: Iterable[str]) -> None:
    """Raise ApiError unless one of the keys is sent, if there are any; takes constant time."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    matches = [secrets.compare_digest(token.strip(), key.encode()) for key in keys]
    if matches and scheme.lower() != b"bearer":
        raise ApiError(401, "an API key is required: send it as Authorization: Bearer KEY")
    if matches and not any(matches):
        raise ApiError(401, "the API key is wrong")


def _endpoint_path(scope: Scope) -> str:
    """Return the path of the endpoint; "other" for unknown paths, to bound the metrics."""
    return getattr(scope.get("route"), "path", "other")
