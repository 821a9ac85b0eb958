"""How far probabilities can be believed: the expected calibration error, and a temperature.

A model that is right as often as it says is calibrated. One temperature, by which all outputs are
divided, repairs most of what fine-tuning does to that (Guo et al. 2017). It changes no answer: what
is said is decided without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15

LEAST, MOST = 0.05, 20.0
"""Between which temperatures are looked for."""


@dataclass(frozen=True)
class Evidence:
    """Outputs for several decisions, (N, K), and which of them was right, (N,)."""

    outputs: NDArray[np.float64]
    right: NDArray[np.int64]

    def part(self, of: slice) -> "Evidence":
        """Some of the decisions."""
        return Evidence(self.outputs[of], self.right[of])

    def __len__(self) -> int:
        return len(self.right)


@dataclass(frozen=True)
class Calibration:
    """A temperature, and the expected calibration error without and with it.

    The error with it is measured on decisions that its temperature was not fitted on: each half
    with that of the other.
    """

    temperature: float
    error_before: float
    error: float

    def as_dict(self) -> Mapping[str, float]:
        """Plain data."""
        return vars(self)


def calibrate(evidence: Evidence) -> Calibration:
    """The calibration of a model that was held against this evidence; the temperature is 1 where
    those of the halves help nobody, as with few decisions."""
    halves = [evidence.part(slice(begin, None, 2)) for begin in (0, 1)]
    errors = [
        calibration_error(mine, fitted_temperature(other)) * len(mine)
        for mine, other in (halves, halves[::-1])
        if len(mine) and len(other)
    ]
    before = calibration_error(evidence, 1.0)
    after = sum(errors) / len(evidence) if len(errors) == 2 else before
    if after >= before:
        return Calibration(1.0, before, before)
    return Calibration(fitted_temperature(evidence), before, after)


def fitted_temperature(evidence: Evidence) -> float:
    """The temperature under which the right answers are most probable."""

    from scipy.optimize import minimize_scalar  # a model loads without it

    def loss(log_temperature: float) -> float:
        logs = _log_softmax(evidence.outputs / np.exp(log_temperature))
        return -float(logs[np.arange(len(evidence)), evidence.right].mean())

    bounds = (float(np.log(LEAST)), float(np.log(MOST)))
    found: Any = minimize_scalar(loss, bounds=bounds, method="bounded")
    return float(np.exp(found.x))


def calibration_error(evidence: Evidence, temperature: float) -> float:
    """By how much the most probable answers are more or less often right than is said, in the mean
    over bins of like probability."""
    chances = np.exp(_log_softmax(evidence.outputs / temperature))
    sure = chances.max(1)
    right = (chances.argmax(1) == evidence.right).astype(np.float64)
    bins = np.minimum((sure * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    total = 0.0
    for number in np.unique(bins):
        inside = bins == number
        total += abs(float(sure[inside].mean() - right[inside].mean())) * inside.sum()
    return total / len(evidence)


def _log_softmax(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    highest = outputs.max(1, keepdims=True)
    return outputs - highest - np.log(np.exp(outputs - highest).sum(1, keepdims=True))
