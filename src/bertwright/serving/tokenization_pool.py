"""A bounded thread pool for tokenization, which comes before the queue of a model."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from bertwright.serving.errors import ApiError

MAX_QUEUED_BODIES = 4
"""Maximum waiting bytes, as a multiple of the largest body: far more than a queue can hold."""

Args = TypeVarTuple("Args")
ResultT = TypeVar("ResultT")


class TokenizationPool:
    """A thread pool with a limit on the bytes that are waiting or being tokenized."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_queued_bytes = MAX_QUEUED_BODIES * max_body_bytes
        self._queued_bytes = 0
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(thread_name_prefix="tokens")

    async def __call__(
        self, num_bytes: int, function: Callable[[*Args], ResultT], *args: *Args
    ) -> ResultT:
        """Run a function on the texts of a body of ``num_bytes``, unless it is cancelled first.

        Errors: ApiError if too many bytes are waiting.
        """
        with self._lock:
            if self._queued_bytes + num_bytes > self._max_queued_bytes:
                raise ApiError(429, "too many texts are waiting for tokenization: retry in 1 s", 1)
            self._queued_bytes += num_bytes
        future = self._executor.submit(function, *args)
        # A cancelled request still occupies its thread, so its bytes count until the thread ends.
        future.add_done_callback(lambda _: self._release(num_bytes))
        return await asyncio.wrap_future(future)

    def _release(self, num_bytes: int) -> None:
        with self._lock:
            self._queued_bytes -= num_bytes
