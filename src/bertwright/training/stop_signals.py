"""Finish the step and write a checkpoint on SIGINT and SIGTERM."""

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

STOP_MESSAGE = "\nstopping after this step{}; a second signal stops immediately\n"


class Interruption:
    """The number of the signal that requested a stop, 0 if there was none."""

    def __init__(self) -> None:
        self.signal_number = 0


@contextmanager
def catch_signals(writes_checkpoint: bool) -> Generator[Interruption]:
    """Record the first signal; restore the default handlers for a second one.

    Signals ignored by the process stay ignored. Does nothing outside of the main thread, the only
    one that receives signals. ``writes_checkpoint`` selects the message.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    message = STOP_MESSAGE.format(", with a checkpoint" if writes_checkpoint else "").encode()

    def record(number: int, _: FrameType | None) -> None:
        interruption.signal_number = number
        os.write(2, message)  # sys.stderr is not reentrant: the signal may interrupt its write
        for handled in previous:
            signal.signal(handled, signal.SIG_DFL)

    previous = {n: h for n in SIGNALS if (h := signal.getsignal(n)) is not signal.SIG_IGN}
    for number in previous:
        signal.signal(number, record)
    try:
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
