"""Calibration of probabilities: the expected calibration error, and a temperature.

A calibrated model is correct as often as its probabilities say. A single temperature, which divides
all outputs, repairs most of the miscalibration caused by fine-tuning (Guo et al. 2017). It does not
change predictions: these are made without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
"""Search range of temperatures."""


CalibrationDecision = tuple[int, int, NDArray[np.floating]]
"""Index of the example, correct class of K, and outputs (R, K) whose probabilities are averaged.

R is the number of windows of a text, or 1."""


@dataclass(frozen=True)
class CalibrationData:
    """Decisions between K classes.

    Attributes:
        outputs: (R, K) outputs of all decisions, concatenated.
        targets: (N,) correct class of each decision.
        output_counts: (N,) number of outputs of each decision.
        example_indices: (N,) index of each decision's example.
    """

    outputs: NDArray[np.float64]
    targets: NDArray[np.int64]
    output_counts: NDArray[np.int64]
    example_indices: NDArray[np.int64]

    @staticmethod
    def from_decisions(decisions: Sequence[CalibrationDecision]) -> "CalibrationData":
        """Return all decisions; K is the largest number of classes."""
        indices, targets, outputs = zip(*decisions, strict=True) if decisions else ((), (), ())
        width = max((part.shape[1] for part in outputs), default=0)
        padded = [
            np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-np.inf)
            for part in outputs
        ]
        return CalibrationData(
            np.concatenate(padded or [np.empty((0, 0))]).astype(np.float64),
            np.array(targets, np.int64),
            np.array([len(part) for part in outputs], np.int64),
            np.array(indices, np.int64),
        )

    def halves(self) -> tuple["CalibrationData", "CalibrationData"]:
        """Return two halves: the decisions of every second example, and of the others."""
        odd = np.unique(self.example_indices, return_inverse=True)[1] % 2 == 1
        return self._subset(~odd), self._subset(odd)

    def _subset(self, mask: NDArray[np.bool_]) -> "CalibrationData":
        outputs = self.outputs[np.repeat(mask, self.output_counts)]
        return CalibrationData(
            outputs, self.targets[mask], self.output_counts[mask], self.example_indices[mask]
        )

    def probabilities(self, temperature: float) -> NDArray[np.float64]:
        """Return the probabilities (N, K) of all classes."""
        probabilities = np.exp(_log_softmax(self.outputs / temperature))
        return np.add.reduceat(probabilities, self._starts) / self.output_counts[:, None]

    def target_log_probabilities(self, temperature: float) -> NDArray[np.float64]:
        """Return the log probabilities (N,) of the targets."""
        log_probabilities = _log_softmax(self.outputs / temperature)
        log_probabilities = log_probabilities[
            np.arange(len(log_probabilities)), np.repeat(self.targets, self.output_counts)
        ]
        return np.logaddexp.reduceat(log_probabilities, self._starts) - np.log(self.output_counts)

    def are_all_correct(self) -> bool:
        """Return whether the target is always the most probable class."""
        return bool((self.probabilities(1.0).argmax(1) == self.targets).all())

    @property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum(self.output_counts) - self.output_counts

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Calibration:
    """A temperature, and the expected calibration error without and with it.

    The error with a temperature is cross-fitted: each half uses the other half's temperature.
    """

    temperature: float
    error_before: float
    error: float

    def as_dict(self) -> Mapping[str, float]:
        """Return plain data."""
        return vars(self)


def fit_calibration(data: CalibrationData) -> Calibration:
    """Return the calibration of a model on ``data``.

    The temperature is 1 if cross-fitted temperatures do not help, as with few decisions, and if all
    decisions are correct: the best fit would then be the lowest possible temperature.
    """
    halves = data.halves()
    errors = [
        expected_calibration_error(half, fit_temperature(other)) * len(half)
        for half, other in (halves, halves[::-1])
        if len(half) and len(other)
    ]
    before = expected_calibration_error(data, 1.0)
    after = sum(errors) / len(data) if len(errors) == 2 else before
    if after >= before or data.are_all_correct():
        return Calibration(1.0, before, before)
    return Calibration(fit_temperature(data), before, after)


def fit_temperature(data: CalibrationData) -> float:
    """Return the temperature with the highest likelihood of the targets."""
    from scipy.optimize import minimize_scalar  # a model loads without it

    def loss(log_temperature: float) -> float:
        return -float(data.target_log_probabilities(np.exp(log_temperature)).mean())

    bounds = (float(np.log(MIN_TEMPERATURE)), float(np.log(MAX_TEMPERATURE)))
    result: Any = minimize_scalar(loss, bounds=bounds, method="bounded")
    return float(np.exp(result.x))


def expected_calibration_error(data: CalibrationData, temperature: float) -> float:
    """Return the mean gap between accuracy and probability over probability bins."""
    predicted = data.probabilities(1.0).argmax(1)
    confidence = data.probabilities(temperature)[np.arange(len(predicted)), predicted]
    correct = (predicted == data.targets).astype(np.float64)
    bins = np.minimum((confidence * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    total = 0.0
    for index in np.unique(bins):
        in_bin = bins == index
        total += abs(float(confidence[in_bin].mean() - correct[in_bin].mean())) * in_bin.sum()
    return total / len(data)


def _log_softmax(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    highest = outputs.max(1, keepdims=True)
    return outputs - highest - np.log(np.exp(outputs - highest).sum(1, keepdims=True))
