"""Cancel a request on timeout or client disconnect."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import Request

from bertwright.serving.errors import ApiError, disconnect_error


@asynccontextmanager
async def request_timeout(request: Request, timeout_seconds: float) -> AsyncGenerator[None]:
    """Cancel the context on a timeout or when the client disconnects.

    Errors: ApiError in both cases.
    """

    async def wait_for_disconnect() -> None:
        # The body has been read already, so the next message is the disconnect.
        await request.receive()
        if not limit.expired():
            limit.reschedule(0)

    limit = asyncio.timeout(timeout_seconds)
    disconnect = asyncio.ensure_future(wait_for_disconnect())
    try:
        async with limit:
            try:
                yield
            finally:
                # Inside the timeout context, which cannot be rescheduled once it is left.
                disconnect.cancel()
    except TimeoutError:
        if disconnect.done():
            raise disconnect_error() from None
        message = f"no result within {timeout_seconds:g} s: send fewer texts, or retry later"
        raise ApiError(504, message) from None
