"""Calibration: a temperature undoes what was overstated, and changes no answer."""

import numpy as np
import pytest

from bertwright.tasks.answers import Answer
from bertwright.tasks.calibration import (
    Evidence,
    calibrate,
    calibration_error,
    fitted_temperature,
)
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.formats.examples import Example, Options, TaggedWords


def honest(number: int, seed: int = 0) -> Evidence:
    """Outputs whose probabilities are as often right as they say."""
    generator = np.random.default_rng(seed)
    outputs = generator.normal(0, 2, (number, 3))
    chances = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    right = [int(generator.choice(3, p=row)) for row in chances]
    return Evidence(outputs, np.array(right))


@pytest.mark.parametrize("overstated", [0.4, 1.0, 3.0])
def test_the_temperature_is_by_how_much_outputs_are_overstated(overstated: float) -> None:
    evidence = honest(20_000)
    loud = Evidence(evidence.outputs * overstated, evidence.right)
    assert fitted_temperature(loud) == pytest.approx(overstated, rel=0.05)


def test_what_is_mended_was_wrong_before() -> None:
    evidence = honest(5_000)
    found = calibrate(Evidence(evidence.outputs * 4, evidence.right))
    assert found.error_before > 0.1
    assert found.error < 0.03
    assert calibration_error(evidence, 1.0) < 0.03


def test_one_decision_has_no_second_half() -> None:
    found = calibrate(Evidence(np.array([[2.0, 0.0]]), np.array([0])))
    assert found.error == found.error_before


@pytest.mark.parametrize("seed", range(8))
def test_a_temperature_that_helps_no_others_is_not_taken(seed: int) -> None:
    found = calibrate(honest(20, seed))
    assert found.error <= found.error_before
    if found.error == found.error_before:
        assert found.temperature == 1.0


CALIBRATED = sorted(kind for kind, own in Answer.kinds().items() if own.calibrated)


@pytest.mark.parametrize("kind", CALIBRATED)
@pytest.mark.parametrize("temperature", [0.05, 0.7, 3.0, 20.0])
def test_what_is_answered_does_not_depend_on_the_temperature(kind: str, temperature: float) -> None:
    threshold = {"threshold": 0.3} if kind == "labels" else {}
    answer = Answer.choose({"kind": kind, **threshold})
    labels, number = ("a", "b", "c"), 300
    examples = {
        "option": [Options("", ("x", "y", "z"))] * number,
        "tags": [TaggedWords(("x", "y", "z"))] * number,
    }.get(kind, [Example("x")] * number)
    generator = np.random.default_rng(0)
    # Three rows of each: the windows of a text, the options, the rows of a sentence.
    rows = [TaskRow([], example) for example in range(number) for _ in range(3)]
    width = answer.build(labels).num_outputs
    outputs = [generator.normal(0, 3, (1, width)).astype(np.float32) for _ in rows]
    plain, tempered = (
        answer.build(labels, own).predictions(rows, outputs, examples) for own in (1.0, temperature)
    )
    assert [said.answer for said in plain] == [said.answer for said in tempered]
    assert [said.probabilities for said in plain] != [said.probabilities for said in tempered]
