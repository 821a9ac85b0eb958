"""Contestants make the steps they are told to, and wait in between."""

import io
import json
import os

import pytest

from bertwright.bench.turns import Contestant, Turns


@pytest.mark.parametrize(("mixed", "seconds"), [(False, 2.0), (True, 4.0)])
def test_a_turn_is_answered_when_its_steps_are_over(
    monkeypatch: pytest.MonkeyPatch, mixed: bool, seconds: float
) -> None:
    # Three steps of 1, 2 and 9 seconds, and one of 5.
    marks = iter([0.0, 1.0, 3.0, 12.0, 20.0, 25.0])
    monkeypatch.setattr("bertwright.bench.turns.time.perf_counter", lambda: next(marks))
    answers = io.StringIO()
    turns = Turns("cpu", io.StringIO('{"steps": 3}\n{"steps": 1}\n'), answers)
    turns.mixed = mixed
    for _ in range(3):
        turns.before_step()
    assert answers.getvalue() == ""
    turns.before_step()
    with pytest.raises(SystemExit):
        turns.before_step()
    lines = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [line["seconds"] for line in lines] == [seconds, 5.0]


def test_a_contestant_that_dies_is_named() -> None:
    with (
        pytest.raises(RuntimeError, match=r"no_such_module .* ended before"),
        Contestant("bertwright.bench.no_such_module", {}, dict(os.environ)) as contestant,
    ):
        contestant.seconds_per_step(1)
