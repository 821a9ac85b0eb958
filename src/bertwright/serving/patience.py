"""How long a request is worked on: until somebody has its answer, or nobody waits for it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import Request

from bertwright.serving.refusals import Refusal, client_left


@asynccontextmanager
async def patience(request: Request, seconds: float) -> AsyncGenerator[None]:
    """What is awaited inside is let go when the client leaves, or time is up.

    Errors: Refusal then.
    """

    async def leave() -> None:
        # The body has been read: all that can still come is that the client leaves.
        await request.receive()
        if not limit.expired():
            limit.reschedule(0)

    limit = asyncio.timeout(seconds)
    left = asyncio.ensure_future(leave())
    try:
        async with limit:
            try:
                yield
            finally:
                # Inside of the limit: outside of it none can be moved.
                left.cancel()
    except TimeoutError:
        if left.done():
            raise client_left() from None
        sentence = f"no answer within {seconds:g} s: send fewer texts, or later"
        raise Refusal(504, sentence) from None
