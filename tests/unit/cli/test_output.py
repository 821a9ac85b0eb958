"""Printed results: aligned for people, JSON for programs."""

import json

import pytest

from bertwright.cli.output import print_result, print_scores

RESULT = {
    "task": "polarity",
    "summary": {"best": 0.75, "num_pruned": 1},
    "none": None,
    "expected_best": [0.5, 0.62512],
    "trials": [
        {"learning_rate": 1e-4, "scores": [0.5, 0.75], "pruned": False},
        {"learning_rate": 2e-4, "scores": None, "step": 12_345},
    ],
}


def test_a_list_of_mappings_is_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_result(RESULT, as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "task                polarity",
        "summary.best        0.75",
        "summary.num pruned  1",
        "none                -",
        "expected best       0.5, 0.6251",
        "",
        "trials:",
        "",
        "| learning rate | scores | pruned | step |",
        "| --- | --- | --- | --- |",
        "| 0.0001 | 0.5, 0.75 | False |  |",
        "| 0.0002 |  |  | 12,345 |",
    ]


@pytest.mark.parametrize(
    ("scores", "intervals", "lines"),
    [
        ([0.25], {"f1": [0.0, 0.5]}, ["score         0.25 [0, 0.5]", "intervals.f1  0, 0.5"]),
        ([0.25], {"other": [0.0, 0.5]}, ["score            0.25", "intervals.other  0, 0.5"]),
        ([0.5, 0.0], {}, ["scores  0.5, 0", "mean    0.25", "best    0.5"]),
    ],
)
def test_a_single_seed_has_a_score_and_no_statistics(
    scores: list[float],
    intervals: dict[str, list[float]],
    lines: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = {"task": "tag", "metric": "f1", "scores": scores}
    result |= {"mean": 0.25, "best": max(scores), "intervals": intervals}
    print_scores(result, as_json=False)
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed[2:] == lines
    print_scores(result, as_json=True)
    assert json.loads(capsys.readouterr().out) == result


def test_json_is_the_whole_result(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(RESULT, as_json=True)
    assert json.loads(capsys.readouterr().out) == RESULT
