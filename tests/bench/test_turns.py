"""Contestants make the steps they are told to, and wait in between."""

import io
import json
import os

import pytest

from bertwright.bench.turns import Contestant, Turns


def test_a_turn_is_answered_when_its_steps_are_over() -> None:
    answers = io.StringIO()
    turns = Turns("cpu", io.StringIO('{"steps": 2}\n{"steps": 1}\n'), answers)
    turns.before_step()
    turns.before_step()
    assert answers.getvalue() == ""
    turns.before_step()
    with pytest.raises(SystemExit):
        turns.before_step()
    lines = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [line["seconds"] >= 0 for line in lines] == [True, True]


def test_a_contestant_that_dies_is_named() -> None:
    with (
        pytest.raises(RuntimeError, match=r"no_such_module .* ended before"),
        Contestant("bertwright.bench.no_such_module", {}, dict(os.environ)) as contestant,
    ):
        contestant.seconds_per_step(1)
