"""Calibration: a temperature undoes what was overstated, and changes no answer."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bertwright.tasks.answers import Answer
from bertwright.tasks.calibration import (
    Decision,
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
    return single(outputs, right)


def single(outputs: np.ndarray, right: Sequence[int]) -> Evidence:
    """A decision of each example, by one output."""
    rows = enumerate(zip(outputs, right, strict=True))
    return Evidence.of(Decision(number, wanted, own[None]) for number, (own, wanted) in rows)


@pytest.mark.parametrize("overstated", [0.4, 1.0, 3.0])
def test_the_temperature_is_by_how_much_outputs_are_overstated(overstated: float) -> None:
    evidence = honest(20_000)
    loud = replace(evidence, outputs=evidence.outputs * overstated)
    assert fitted_temperature(loud) == pytest.approx(overstated, rel=0.05)


def test_what_is_mended_was_wrong_before() -> None:
    evidence = honest(5_000)
    found = calibrate(replace(evidence, outputs=evidence.outputs * 4))
    assert found.error_before > 0.1
    assert found.error < 0.03
    assert calibration_error(evidence, 1.0) < 0.03


def test_one_decision_has_no_second_half() -> None:
    found = calibrate(single(np.array([[2.0, 0.0]]), [0]))
    assert found.error == found.error_before


@pytest.mark.parametrize("number", [3, 40])
def test_answers_that_are_all_right_have_no_temperature(number: int) -> None:
    right = [n % 2 for n in range(number)]
    outputs = np.array([[0.0, 0.5] if own else [0.5, 0.0] for own in right])
    found = calibrate(single(outputs, right))
    assert (found.temperature, found.error) == (1.0, found.error_before)


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


@pytest.mark.parametrize("kind", ["class", "labels"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_what_is_judged_of_windows_is_what_is_said_of_the_text(
    kind: str, temperature: float
) -> None:
    labels, number = ("a", "b", "c"), 200
    generator = np.random.default_rng(0)
    own = [labels[place] for place in generator.integers(3, size=number)]
    examples = [Example("x", label=label if kind == "class" else (label,)) for label in own]
    rows = [TaskRow([], n) for n in range(number) for _ in range(int(generator.integers(1, 5)))]
    outputs = [generator.normal(0, 3, (1, 3)).astype(np.float32) for _ in rows]
    answering = Answer.choose({"kind": kind}).build(labels, temperature)
    said = answering.predictions(rows, outputs, examples)
    chances = np.array([list(each.probabilities.values()) for each in said], np.float64)
    evidence = answering.evidence(rows, outputs, examples)
    found = evidence.chances(temperature)
    expected = chances if kind == "class" else np.stack([1 - chances, chances], 2).reshape(-1, 2)
    assert np.allclose(found, expected, atol=1e-5)
    right = found[np.arange(len(found)), evidence.right]
    assert np.allclose(np.exp(evidence.log_chances(temperature)), right)
    halves = [set(half.examples) for half in evidence.halves()]
    assert not halves[0] & halves[1]
    assert len(halves[0]) == len(halves[1])
