"""What is printed for people."""

import json

import pytest

from bertwright.cli.output import report

RESULT = {
    "task": "own",
    "over_trials": {"best": 0.75, "given_up": 1},
    "none": None,
    "expected_best": [0.5, 0.62512],
    "trials": [
        {"rate": 1e-4, "scores": [0.5, 0.75], "given_up": False},
        {"rate": 2e-4, "scores": None, "reached": 12_345},
    ],
}


def test_things_with_values_of_their_own_stand_in_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report(RESULT, as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "task                  own",
        "over trials.best      0.75",
        "over trials.given up  1",
        "none                  -",
        "expected best         0.5, 0.6251",
        "",
        "trials:",
        "",
        "| rate | scores | given up | reached |",
        "| --- | --- | --- | --- |",
        "| 0.0001 | 0.5, 0.75 | False |  |",
        "| 0.0002 |  |  | 12,345 |",
    ]


def test_json_is_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    report(RESULT, as_json=True)
    assert json.loads(capsys.readouterr().out) == RESULT
