"""Worker processes run the steps they are sent, and wait in between."""

import io
import json
import os

import pytest

from bertwright.timing.interleaved import StepTimer, TimedProcess


@pytest.mark.parametrize(("mixed", "seconds"), [(False, 2.0), (True, 4.0)])
def test_a_round_is_reported_after_its_steps(
    monkeypatch: pytest.MonkeyPatch, mixed: bool, seconds: float
) -> None:
    # Three steps of 1, 2 and 9 seconds, and one of 5.
    marks = iter([0.0, 1.0, 3.0, 12.0, 20.0, 25.0])
    monkeypatch.setattr("bertwright.timing.interleaved.time.perf_counter", lambda: next(marks))
    replies = io.StringIO()
    timer = StepTimer("cpu", io.StringIO('{"steps": 3}\n{"steps": 1}\n'), replies)
    timer.has_mixed_steps = mixed
    for _ in range(3):
        timer.before_step()
    assert replies.getvalue() == ""
    timer.before_step()
    with pytest.raises(SystemExit):
        timer.before_step()
    lines = [json.loads(line) for line in replies.getvalue().splitlines()]
    assert [line["seconds"] for line in lines] == [seconds, 5.0]


def test_a_process_that_dies_is_named() -> None:
    with (
        pytest.raises(RuntimeError, match=r"no_such_module .* ended during its round"),
        TimedProcess("benchmarks.no_such_module", {}, dict(os.environ)) as process,
    ):
        process.seconds_per_step(1)
