"""Jobs in parallel processes."""

import os
import signal
import time
from functools import partial
from multiprocessing import active_children

import pytest

from bertwright.runtime.parallel import run_parallel


def test_sigterm_stops_the_processes_of_all_jobs() -> None:
    previous = signal.getsignal(signal.SIGTERM)
    results = run_parallel([os.getpid, partial(time.sleep, 600)], 2)
    index, process_id = next(results)
    assert (index, process_id != os.getpid()) == (0, True)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        signal.raise_signal(signal.SIGTERM)
    results.close()
    assert interrupted.value.args == (signal.SIGTERM,)
    assert active_children() == []
    assert signal.getsignal(signal.SIGTERM) == previous
