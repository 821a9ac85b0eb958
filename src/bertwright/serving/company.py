"""Many compute with an encoder at once, or one alone: recordings belong to the encoder, not to the
thread, so that who looks inside would see what passes for others.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Condition


class Company:
    """Who is with an encoder. All come in the order in which they asked, so that neither a stream
    of those who want to be alone nor one of others keeps anybody out."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._num_asked = self._num_let_in = 0
        self._num_together = 0
        self._alone = False

    @contextmanager
    def together(self) -> Generator[None]:
        """With others."""
        with self._changed:
            self._wait_for_turn(lambda: not self._alone)
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
            self._wait_for_turn(lambda: not self._alone and not self._num_together)
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()

    def _wait_for_turn(self, fits: Callable[[], bool]) -> None:
        ticket = self._num_asked
        self._num_asked += 1
        self._changed.wait_for(lambda: ticket == self._num_let_in and fits())
        self._num_let_in += 1
        self._changed.notify_all()
