"""Every request passes the door: here it is let in, refused, measured, and kept from harm.

Outside of the framework, so that nothing of a body is read before it is known to be welcome, and no
error leaves with more than a sentence.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bertwright.serving.metrics import Metrics
from bertwright.serving.refusals import Refusal, client_left, refused, stopping
from bertwright.serving.settings import Settings

LOG = logging.getLogger("bertwright.serving")

OPEN = frozenset({"/", "/health", "/docs", "/openapi.json"})
"""What is shown to who has no key, and only shown: it says nothing of the models."""

READING = frozenset({"GET", "HEAD"})
"""How one asks to be shown a page: with other methods the same path may be an endpoint."""

WATCHING = frozenset({"/health", "/metrics"})
"""What is answered however many requests there are: it is asked whether the server is well."""


DISCARDED = 16
"""How many times as much as is taken of a body is read and forgotten, before its connection is
closed on who sends it."""

IDLE_SECONDS = 1.0
"""Until who sends nothing more of a refused body is taken to send nothing at all."""


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
            raise stopping()
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
        began = time.perf_counter()
        body = Body(scope, receive, self._settings)
        told = Told(send, self._settings.timeout_seconds)
        try:
            await self._let_in(scope, body, told)
        except HTTPException as refusal:
            await told.instead(scope, await body.refusing(refusal))
        except ConnectionError:
            LOG.info("a client did not read its answer")
        except Exception:
            number = secrets.token_hex(8)
            LOG.exception("internal error %s", number)
            await told.instead(scope, HTTPException(500, f"internal error {number}"))
        finally:
            seconds = time.perf_counter() - began
            self._metrics.answered(_endpoint(scope), told.status, seconds)

    async def _let_in(self, scope: Scope, body: "Body", told: "Told") -> None:
        self._gate.enter(scope["path"])
        try:
            if scope["path"] not in OPEN or scope["method"] not in READING:
                require_key(body.headers, self._settings.api_keys)
            body.require_small()
            await self._app(scope, body.receive, told)
        finally:
            self._gate.leave()


class Body:
    """What a client sends, within limits of size and of time; nothing is kept that is too much."""

    def __init__(self, scope: Scope, receive: Receive, settings: Settings) -> None:
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive
        self._most = settings.body_bytes
        self._seconds = settings.timeout_seconds
        self._until = asyncio.get_running_loop().time() + self._seconds
        self._num_bytes = 0
        self._whole = False

    def require_small(self) -> None:
        """Errors: Refusal for a body that says of itself that it is too large."""
        stated = self.headers.get(b"content-length", b"")
        if stated.isdigit() and int(stated) > self._most:
            raise self._too_large()

    async def receive(self) -> Message:
        """The next part. Errors: Refusal where there is too much, or too slowly, or no more."""
        if self._whole:
            return await self._receive()
        try:
            message = await self._next(self._until)
        except TimeoutError:
            late = Refusal(408, f"the body did not arrive within {self._seconds:g} s")
            raise await self.refusing(late) from None
        if message["type"] == "http.disconnect":
            raise client_left()
        if self._num_bytes > self._most:
            raise await self.refusing(self._too_large())
        return message

    async def refusing(self, refusal: HTTPException) -> HTTPException:
        """A refusal, when the rest of the body has passed by, as far as that is bearable: a client
        that is still sending when its connection is closed hears no answer. Where there may be more
        it is closed, else that would be taken for a request."""
        # Who asks whether to send it is told no by the refusal.
        if self._num_bytes or b"expect" not in self.headers:
            with suppress(TimeoutError):
                while not self._whole and self._num_bytes < DISCARDED * self._most:
                    idle = asyncio.get_running_loop().time() + IDLE_SECONDS
                    await self._next(min(idle, self._until))
        if not self._whole:
            refusal.headers = {**(refusal.headers or {}), "Connection": "close"}
        return refusal

    async def _next(self, until: float) -> Message:
        async with asyncio.timeout_at(until):
            message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        return message

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body has more than {self._most} bytes: send less at once")


class Told:
    """Sends on, and remembers the status."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send, self._seconds = send, seconds
        self._begun = False
        self.status = 500

    async def __call__(self, message: Message) -> None:
        """Errors: ConnectionError where the client does not read what it is told."""
        if message["type"] == "http.response.start":
            self._begun, self.status = True, message["status"]
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            raise ConnectionAbortedError from None

    async def instead(self, scope: Scope, refusal: HTTPException) -> None:
        """Refuse, unless an answer has begun: that is cut off."""
        if not self._begun:
            await refused(scope["path"], refusal)(scope, _nothing, self)


async def _nothing() -> Message:
    """What a refusal reads of a request."""
    return {"type": "http.disconnect"}


def require_key(headers: Mapping[bytes, bytes], keys: Iterable[str]) -> None:
    """Errors: Refusal where there are keys and the request shows none of them. How long that takes
    says nothing of how nearly it was one."""
    kind, _, shown = headers.get(b"authorization", b"").partition(b" ")
    matches = [secrets.compare_digest(shown.strip(), key.encode()) for key in keys]
    if matches and kind.lower() != b"bearer":
        raise Refusal(401, "a key is needed: send it as Authorization: Bearer KEY")
    if matches and not any(matches):
        raise Refusal(401, "the key is none of those that this server knows")


def _endpoint(scope: Scope) -> str:
    """The path of the endpoint that answered: what clients make up is not counted one by one."""
    return getattr(scope.get("route"), "path", "other")
