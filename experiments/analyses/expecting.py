"""Expected values of analyses on planted models."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bertwright.analysis.core.analysis import Analysis
from bertwright.analysis.core.result import AnalysisResult, StoredResult


@dataclass(frozen=True)
class ExpectedValue:
    """A value and the closed interval that it must lie in."""

    description: str
    value: float
    low: float
    high: float

    @property
    def is_met(self) -> bool:
        """True if the value lies in the interval."""
        return self.low <= self.value <= self.high

    def __str__(self) -> str:
        return f"{self.description}: {self.value:.6g}, not in [{self.low:.6g}, {self.high:.6g}]"


PlantedCheck = Callable[[], Iterator[ExpectedValue]]
"""Plants something, runs an analysis and yields the expected values."""

LearnedCheck = Callable[[StoredResult], Iterator[ExpectedValue]]
"""Yields the expected values of a result of the toy model."""


def expect_equal(
    description: str, values: ArrayLike, expected: ArrayLike, tolerance: float = 1e-6
) -> ExpectedValue:
    """Expect values equal up to a tolerance."""
    difference = np.abs(_numbers(values) - _numbers(expected)).max()
    return ExpectedValue(f"{description}: largest difference", float(difference), 0.0, tolerance)


def expect_above(description: str, values: ArrayLike, limit: float) -> ExpectedValue:
    """Expect all values above a limit."""
    return ExpectedValue(description, float(_numbers(values).min()), limit, np.inf)


def expect_below(description: str, values: ArrayLike, limit: float) -> ExpectedValue:
    """Expect all values below a limit."""
    return ExpectedValue(description, float(_numbers(values).max()), -np.inf, limit)


def expect_same(description: str, value: object, expected: object) -> ExpectedValue:
    """Expect an equal object."""
    text = f"{description}: {value} for {expected}"
    return ExpectedValue(text, float(value == expected), 1.0, 1.0)


def expect_verdicts(
    description: str, analysis: Analysis, result: AnalysisResult, expected: Mapping[Any, str]
) -> Iterator[ExpectedValue]:
    """Expect verdicts on the claims whose texts contain the keys of ``expected``."""
    stored = StoredResult({}, [f.as_dict() for f in result.findings], result.arrays)
    claims = analysis.check_claims(stored)
    for part, label in expected.items():
        verdicts = [claim.verdict for claim in claims if part in claim.claim]
        yield expect_same(f"{description}: verdict on {part!r}", verdicts, [label])


def _numbers(values: ArrayLike) -> NDArray[np.float64]:
    """Return values as an array, from any device."""
    return np.asarray(values.cpu() if isinstance(values, Tensor) else values, np.float64)
