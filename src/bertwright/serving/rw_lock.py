"""A read-write lock of a model.

Recordings of activations belong to the encoder, not to a thread, so they need exclusive access.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Condition


class ReadWriteLock:
    """Fair read-write lock: first come, first served, so neither readers nor writers starve."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._next_ticket = self._current_ticket = 0
        self._num_readers = 0
        self._has_writer = False

    @contextmanager
    def read_lock(self) -> Generator[None]:
        """Hold the lock together with other readers."""
        with self._condition:
            self._wait_for_turn(lambda: not self._has_writer)
            self._num_readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._num_readers -= 1
                self._condition.notify_all()

    @contextmanager
    def write_lock(self) -> Generator[None]:
        """Hold the lock alone."""
        with self._condition:
            self._wait_for_turn(lambda: not self._has_writer and not self._num_readers)
            self._has_writer = True
        try:
            yield
        finally:
            with self._condition:
                self._has_writer = False
                self._condition.notify_all()

    def _wait_for_turn(self, can_enter: Callable[[], bool]) -> None:
        ticket = self._next_ticket
        self._next_ticket += 1
        self._condition.wait_for(lambda: ticket == self._current_ticket and can_enter())
        self._current_ticket += 1
        self._condition.notify_all()
