"""Every request passes the door: here it is let in, refused, measured, and kept from harm.

Outside of the framework, so that nothing of a body is read before it is known to be welcome, and no
error leaves with more than a sentence.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bertwright.serving.metrics import Metrics
from bertwright.serving.refusals import Refusal, refused
from bertwright.serving.settings import Settings

LOG = logging.getLogger("bertwright.serving")

OPEN = frozenset({"/", "/health", "/docs", "/openapi.json"})
"""What is shown to who has no key: it says nothing of the models."""

WATCHING = frozenset({"/health", "/metrics"})
"""What is answered however many requests there are: it is asked whether the server is well."""


class Gate:
    """Who is inside. When it is closed nobody comes in any more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._closed = False
        self.num_inside = 0

    def close(self) -> None:
        """Let nobody in."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether nobody is let in."""
        return self._closed

    def enter(self, path: str) -> None:
        """Errors: Refusal where it is closed, or too many are inside."""
        if self._closed:
            raise Refusal(503, "the server is stopping: ask another", 1)
        if self.num_inside >= self._most and path not in WATCHING:
            raise Refusal(429, f"{self._most} requests are being answered: come again", 1)
        self.num_inside += 1

    def leave(self) -> None:
        """For everyone who came in."""
        self.num_inside -= 1


class Door:
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, gate: Gate, settings: Settings, metrics: Metrics) -> None:
        self._app, self._gate, self._settings, self._metrics = app, gate, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, told = time.perf_counter(), _Told(send)
        try:
            await self._let_in(scope, receive, told)
        except HTTPException as refusal:
            await told.instead(scope, receive, refusal)
        except Exception:
            number = secrets.token_hex(8)
            LOG.exception("internal error %s", number)
            await told.instead(scope, receive, HTTPException(500, f"internal error {number}"))
        finally:
            seconds = time.perf_counter() - began
            self._metrics.answered(_endpoint(scope), told.status, seconds)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate.enter(scope["path"])
        try:
            headers: dict[bytes, bytes] = dict(scope["headers"])
            if scope["path"] not in OPEN:
                require_key(headers, self._settings.api_keys)
            await self._app(scope, bounded(headers, receive, self._settings), send)
        finally:
            self._gate.leave()


class _Told:
    """Sends on, and remembers the status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self.status = 500

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun, self.status = True, message["status"]
        await self._send(message)

    async def instead(self, scope: Scope, receive: Receive, refusal: HTTPException) -> None:
        """Refuse, unless an answer has begun: that is cut off."""
        if not self._begun:
            await refused(scope["path"], refusal)(scope, receive, self)


def require_key(headers: Mapping[bytes, bytes], keys: Iterable[str]) -> None:
    """Errors: Refusal where there are keys and the request shows none of them. How long that takes
    says nothing of how nearly it was one."""
    kind, _, shown = headers.get(b"authorization", b"").partition(b" ")
    matches = [secrets.compare_digest(shown.strip(), key.encode()) for key in keys]
    if matches and not (any(matches) and kind.lower() == b"bearer"):
        raise Refusal(401, "a key is needed: send it as Authorization: Bearer KEY")


def bounded(headers: Mapping[bytes, bytes], receive: Receive, settings: Settings) -> Receive:
    """What receives a body up to its limits of size and time, and keeps none of what is too much.

    Errors: Refusal, at once for a body that says it is too large.
    """
    most, seconds = settings.body_bytes, settings.timeout_seconds
    too_large = Refusal(413, f"the body has more than {most} bytes: send less at once")
    stated = headers.get(b"content-length", b"")
    if stated.isdigit() and int(stated) > most:
        raise too_large
    until = asyncio.get_running_loop().time() + seconds
    num_bytes, whole = 0, False

    async def take() -> Message:
        nonlocal num_bytes, whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {seconds:g} s") from None
        num_bytes += len(message.get("body", b""))
        if num_bytes > most:
            raise too_large
        whole = not message.get("more_body", False)
        return message

    return take


def _endpoint(scope: Scope) -> str:
    """The path of the endpoint that answered: what clients make up is not counted one by one."""
    return getattr(scope.get("route"), "path", "other")
