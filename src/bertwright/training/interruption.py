"""SIGINT and SIGTERM during training: the step is finished first, and a checkpoint written."""

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

NOTED = "\nstopping after this step{}; a second signal stops at once\n"


class Interruption:
    """Which signal asked to stop, 0 while none did."""

    def __init__(self) -> None:
        self.signal_number = 0


@contextmanager
def interruptions(kept: bool) -> Generator[Interruption]:
    """Note the first signal; a second one kills as if nobody listened. What the process was started
    to ignore it goes on ignoring. ``kept`` says whether the step will be.

    Signals reach the main thread only: elsewhere nothing is noted and nothing changes.
    """
    noted = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    said = NOTED.format(", with a checkpoint" if kept else "").encode()

    def note(number: int, _: FrameType | None) -> None:
        noted.signal_number = number
        os.write(2, said)  # not by sys.stderr, in whose write this may have come
        for each in heard:
            signal.signal(each, signal.SIG_DFL)

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
