"""Calibration: a temperature undoes overconfidence and changes no prediction."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.formats.examples import Example, MultipleChoice, TaggedSentence
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.outputs.calibration import (
    CalibrationData,
    expected_calibration_error,
    fit_calibration,
    fit_temperature,
)


def calibrated_data(number: int, seed: int = 0) -> CalibrationData:
    """Return outputs whose probabilities are calibrated."""
    generator = np.random.default_rng(seed)
    outputs = generator.normal(0, 2, (number, 3))
    chances = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    right = [int(generator.choice(3, p=row)) for row in chances]
    return single(outputs, right)


def single(outputs: np.ndarray, targets: Sequence[int]) -> CalibrationData:
    """Return one decision per example, with one output."""
    rows = enumerate(zip(outputs, targets, strict=True))
    return CalibrationData.from_decisions(
        [(number, target, output[None]) for number, (output, target) in rows]
    )


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.0])
def test_temperature_recovers_the_scale_of_overconfident_outputs(scale: float) -> None:
    data = calibrated_data(20_000)
    scaled = replace(data, outputs=data.outputs * scale)
    assert fit_temperature(scaled) == pytest.approx(scale, rel=0.05)


def test_calibration_reduces_the_error() -> None:
    data = calibrated_data(5_000)
    calibration = fit_calibration(replace(data, outputs=data.outputs * 4))
    assert calibration.error_before > 0.1
    assert calibration.error < 0.03
    assert expected_calibration_error(data, 1.0) < 0.03


def test_single_decision_is_not_calibrated() -> None:
    calibration = fit_calibration(single(np.array([[2.0, 0.0]]), [0]))
    assert calibration.error == calibration.error_before


@pytest.mark.parametrize("number", [3, 40])
def test_all_correct_decisions_have_temperature_1(number: int) -> None:
    targets = [n % 2 for n in range(number)]
    outputs = np.array([[0.0, 0.5] if target else [0.5, 0.0] for target in targets])
    calibration = fit_calibration(single(outputs, targets))
    assert (calibration.temperature, calibration.error) == (1.0, calibration.error_before)


@pytest.mark.parametrize("seed", range(8))
def test_temperature_that_does_not_generalise_is_not_used(seed: int) -> None:
    calibration = fit_calibration(calibrated_data(20, seed))
    assert calibration.error <= calibration.error_before
    if calibration.error == calibration.error_before:
        assert calibration.temperature == 1.0


CALIBRATED = sorted(kind for kind, cls in OutputType.kinds().items() if cls.can_calibrate)


@pytest.mark.parametrize("kind", CALIBRATED)
@pytest.mark.parametrize("temperature", [0.05, 0.7, 3.0, 20.0])
def test_predictions_do_not_depend_on_the_temperature(kind: str, temperature: float) -> None:
    threshold = {"threshold": 0.3} if kind == "labels" else {}
    output_type = OutputType.parse({"kind": kind, **threshold})
    labels, number = ("a", "b", "c"), 300
    examples = {
        "option": [MultipleChoice("", ("x", "y", "z"))] * number,
        "tags": [TaggedSentence(("x", "y", "z"))] * number,
    }.get(kind, [Example("x")] * number)
    generator = np.random.default_rng(0)
    # Three sequences each: windows of a text, options, or parts of a sentence.
    rows = [TaskSequence([], example) for example in range(number) for _ in range(3)]
    width = output_type.build_decoder(labels).num_outputs
    outputs = [generator.normal(0, 3, (1, width)).astype(np.float32) for _ in rows]
    plain, tempered = (
        output_type.build_decoder(labels, value).decode(rows, outputs, examples)
        for value in (1.0, temperature)
    )
    assert [prediction.value for prediction in plain] == [
        prediction.value for prediction in tempered
    ]
    assert [prediction.probabilities for prediction in plain] != [
        prediction.probabilities for prediction in tempered
    ]


@pytest.mark.parametrize("kind", ["class", "labels"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_calibration_probabilities_match_predictions_over_windows(
    kind: str, temperature: float
) -> None:
    labels, number = ("a", "b", "c"), 200
    generator = np.random.default_rng(0)
    labels_drawn = [labels[index] for index in generator.integers(3, size=number)]
    examples = [
        Example("x", label=label if kind == "class" else (label,)) for label in labels_drawn
    ]
    sequences = [
        TaskSequence([], n) for n in range(number) for _ in range(int(generator.integers(1, 5)))
    ]
    outputs = [generator.normal(0, 3, (1, 3)).astype(np.float32) for _ in sequences]
    decoder = OutputType.parse({"kind": kind}).build_decoder(labels, temperature)
    predictions = decoder.decode(sequences, outputs, examples)
    predicted = np.array(
        [list(prediction.probabilities.values()) for prediction in predictions], np.float64
    )
    data = decoder.calibration_data(sequences, outputs, examples)
    probabilities = data.probabilities(temperature)
    expected = (
        predicted if kind == "class" else np.stack([1 - predicted, predicted], 2).reshape(-1, 2)
    )
    assert np.allclose(probabilities, expected, atol=1e-5)
    target_probabilities = probabilities[np.arange(len(probabilities)), data.targets]
    assert np.allclose(np.exp(data.target_log_probabilities(temperature)), target_probabilities)
    halves = [set(half.example_indices) for half in data.halves()]
    assert not halves[0] & halves[1]
    assert len(halves[0]) == len(halves[1])
