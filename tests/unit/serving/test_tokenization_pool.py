"""The limit on texts that wait for tokenization."""

import asyncio
import contextlib
import threading

import pytest

from bertwright.serving.errors import ApiError
from bertwright.serving.tokenization_pool import MAX_QUEUED_BODIES, TokenizationPool


def test_a_cancelled_request_counts_until_its_thread_ends() -> None:
    async def run() -> None:
        pool = TokenizationPool(max_body_bytes=1)
        started, may_end = threading.Event(), threading.Event()

        def block() -> None:
            started.set()
            may_end.wait()

        request = asyncio.create_task(pool(MAX_QUEUED_BODIES, block))
        await asyncio.to_thread(started.wait)
        request.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await request
        with pytest.raises(ApiError, match="too many texts"):
            await pool(1, len, "text")
        may_end.set()
        while True:
            with contextlib.suppress(ApiError):
                assert await pool(MAX_QUEUED_BODIES, len, "text") == 4
                break
            await asyncio.sleep(0)

    asyncio.run(run())
