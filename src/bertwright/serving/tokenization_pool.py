"""A bounded thread pool for tokenization, which comes before the queue of a model."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from bertwright.serving.errors import ApiError

MAX_QUEUED_BODIES = 4
"""Maximum waiting bytes, as a multiple of the largest body: far more than a queue can hold."""

Args = TypeVarTuple("Args")
ResultT = TypeVar("ResultT")


class TokenizationPool:
    """A thread pool with a limit on waiting bytes."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_queued_bytes = MAX_QUEUED_BODIES * max_body_bytes
        self._queued_bytes = 0
        self._executor = ThreadPoolExecutor(thread_name_prefix="tokens")

    async def __call__(
        self, num_bytes: int, function: Callable[[*Args], ResultT], *args: *Args
    ) -> ResultT:
        """Run a function on the texts of a body of ``num_bytes``, unless it is cancelled first.

        Errors: ApiError if too many bytes are waiting.
        """
        if self._queued_bytes + num_bytes > self._max_queued_bytes:
            raise ApiError(429, "too many texts are waiting for tokenization: retry in 1 s", 1)
        self._queued_bytes += num_bytes
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)
        finally:
            self._queued_bytes -= num_bytes
