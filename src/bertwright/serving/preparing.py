"""Texts become pieces before they are in the queue of a model, in threads of their own: of what
waits for those only so much is taken, too."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from bertwright.serving.refusals import Refusal

BODIES = 4
"""How many of the largest bodies may wait: seconds of work, and far more than a queue holds."""

Given = TypeVarTuple("Given")
Made = TypeVar("Made")


class Preparing:
    """The threads, and how much waits for them."""

    def __init__(self, body_bytes: int) -> None:
        self._bound = BODIES * body_bytes
        self._waiting_bytes = 0
        self._threads = ThreadPoolExecutor(thread_name_prefix="pieces")

    async def __call__(
        self, num_bytes: int, make: Callable[[*Given], Made], *given: *Given
    ) -> Made:
        """What is made of the texts of a body of so many bytes. Where nobody waits for it any more
        it is not begun.

        Errors: Refusal where too much waits.
        """
        if self._waiting_bytes + num_bytes > self._bound:
            raise Refusal(429, "too many texts wait to be read: come again in 1 s", 1)
        self._waiting_bytes += num_bytes
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, make, *given)
        finally:
            self._waiting_bytes -= num_bytes
