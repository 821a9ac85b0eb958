"""How far probabilities can be believed: the expected calibration error, and a temperature.

A model that is right as often as it says is calibrated. One temperature, by which all outputs are
divided, repairs most of what fine-tuning does to that (Guo et al. 2017). It changes no answer: what
is said is decided without it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15

LEAST, MOST = 0.05, 20.0
"""Between which temperatures are looked for."""


class Decision(NamedTuple):
    """Between K answers, of which one was ``right``, by outputs (R, K) whose probabilities are
    averaged: those of the windows of a text, or a single one."""

    example: int
    right: int
    outputs: NDArray[np.floating]


@dataclass(frozen=True)
class Evidence:
    """Decisions between K answers.

    Attributes:
        outputs: (R, K), those of a decision one after the other.
        right: (N,), which answer of each was right.
        sizes: (N,), how many outputs each has.
        examples: (N,), the index of the example of each.
    """

    outputs: NDArray[np.float64]
    right: NDArray[np.int64]
    sizes: NDArray[np.int64]
    examples: NDArray[np.int64]

    @staticmethod
    def of(decisions: Iterable[Decision]) -> "Evidence":
        """All of these, of K answers each."""
        found = list(decisions)
        outputs = [np.empty((0, 0))] if not found else [each.outputs for each in found]
        return Evidence(
            np.concatenate(outputs).astype(np.float64),
            np.array([each.right for each in found], np.int64),
            np.array([len(each.outputs) for each in found], np.int64),
            np.array([each.example for each in found], np.int64),
        )

    def halves(self) -> tuple["Evidence", "Evidence"]:
        """What every second example says, and what the others say."""
        odd = np.unique(self.examples, return_inverse=True)[1] % 2 == 1
        return self._part(~odd), self._part(odd)

    def _part(self, of: NDArray[np.bool_]) -> "Evidence":
        outputs = self.outputs[np.repeat(of, self.sizes)]
        return Evidence(outputs, self.right[of], self.sizes[of], self.examples[of])

    def chances(self, temperature: float) -> NDArray[np.float64]:
        """(N, K), of every answer."""
        chances = np.exp(_log_softmax(self.outputs / temperature))
        return np.add.reduceat(chances, self._starts) / self.sizes[:, None]

    def log_chances(self, temperature: float) -> NDArray[np.float64]:
        """(N,), of the right answers."""
        logs = _log_softmax(self.outputs / temperature)
        logs = logs[np.arange(len(logs)), np.repeat(self.right, self.sizes)]
        return np.logaddexp.reduceat(logs, self._starts) - np.log(self.sizes)

    def are_all_right(self) -> bool:
        """Return whether the most probable answer is the right one in every decision."""
        return bool((self.chances(1.0).argmax(1) == self.right).all())

    @property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum(self.sizes) - self.sizes

    def __len__(self) -> int:
        return len(self.right)


@dataclass(frozen=True)
class Calibration:
    """A temperature, and the expected calibration error without and with it.

    The error with it is measured on examples that its temperature was not fitted on: each half with
    that of the other.
    """

    temperature: float
    error_before: float
    error: float

    def as_dict(self) -> Mapping[str, float]:
        """Plain data."""
        return vars(self)


def calibrate(evidence: Evidence) -> Calibration:
    """Return the calibration of a model on this evidence; the temperature is 1 where those of the
    halves help neither, as with few decisions, and where all answers are right: the lowest that can
    be would fit them best."""
    halves = evidence.halves()
    errors = [
        calibration_error(mine, fitted_temperature(other)) * len(mine)
        for mine, other in (halves, halves[::-1])
        if len(mine) and len(other)
    ]
    before = calibration_error(evidence, 1.0)
    after = sum(errors) / len(evidence) if len(errors) == 2 else before
    if after >= before or evidence.are_all_right():
        return Calibration(1.0, before, before)
    return Calibration(fitted_temperature(evidence), before, after)


def fitted_temperature(evidence: Evidence) -> float:
    """The temperature under which the right answers are most probable."""

    from scipy.optimize import minimize_scalar  # a model loads without it

    def loss(log_temperature: float) -> float:
        return -float(evidence.log_chances(np.exp(log_temperature)).mean())

    bounds = (float(np.log(LEAST)), float(np.log(MOST)))
    found: Any = minimize_scalar(loss, bounds=bounds, method="bounded")
    return float(np.exp(found.x))


def calibration_error(evidence: Evidence, temperature: float) -> float:
    """By how much the most probable answers are more or less often right than is said, in the mean
    over bins of like probability."""
    said = evidence.chances(1.0).argmax(1)
    sure = evidence.chances(temperature)[np.arange(len(said)), said]
    right = (said == evidence.right).astype(np.float64)
    bins = np.minimum((sure * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    total = 0.0
    for number in np.unique(bins):
        inside = bins == number
        total += abs(float(sure[inside].mean() - right[inside].mean())) * inside.sum()
    return total / len(evidence)


def _log_softmax(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    highest = outputs.max(1, keepdims=True)
    return outputs - highest - np.log(np.exp(outputs - highest).sum(1, keepdims=True))
