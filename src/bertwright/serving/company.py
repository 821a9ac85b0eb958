"""Many compute with an encoder at once, or one alone: recordings belong to the encoder, not to the
thread, so that who looks inside would see what passes for others.
"""

from collections.abc import Generator
from contextlib import contextmanager
from threading import Condition


class Company:
    """Who is with an encoder."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._num_together = 0
        self._num_wanting = 0
        self._alone = False

    @contextmanager
    def together(self) -> Generator[None]:
        """With others. Whoever wants to be alone goes first, else that moment might never come."""
        with self._changed:
            self._changed.wait_for(lambda: not self._num_wanting)
            self._num_together += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Generator[None]:
        """With nobody else, when everyone who is here has left."""
        with self._changed:
            self._num_wanting += 1
            self._changed.wait_for(lambda: not self._num_together and not self._alone)
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._num_wanting -= 1
                self._changed.notify_all()
