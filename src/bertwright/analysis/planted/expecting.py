"""What must come out where the answer was planted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bertwright.analysis.findings import Stored


@dataclass(frozen=True)
class Expected:
    """A figure, and between what it must lie, ends included."""

    what: str
    found: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether it does."""
        return self.low <= self.found <= self.high

    def __str__(self) -> str:
        return f"{self.what}: {self.found:.6g}, not in [{self.low:.6g}, {self.high:.6g}]"


Expectations = Callable[[], Iterator[Expected]]
"""Plants something, asks an analysis, and tells what must come out."""

OfToy = Callable[[Stored], Iterator[Expected]]
"""Tells what must have come out of the toy model."""


def equal(what: str, found: ArrayLike, wanted: ArrayLike, within: float = 1e-6) -> Expected:
    """All of these are those, to so much."""
    difference = np.abs(_numbers(found) - _numbers(wanted)).max()
    return Expected(f"{what}: greatest difference", float(difference), 0.0, within)


def above(what: str, found: ArrayLike, limit: float) -> Expected:
    """All of these are above so much."""
    return Expected(what, float(_numbers(found).min()), limit, np.inf)


def below(what: str, found: ArrayLike, limit: float) -> Expected:
    """All of these are below so much."""
    return Expected(what, float(_numbers(found).max()), -np.inf, limit)


def same(what: str, found: object, wanted: object) -> Expected:
    """This is that."""
    told = f"{what}: {found} for {wanted}"
    return Expected(told, float(found == wanted), 1.0, 1.0)


def _numbers(values: ArrayLike) -> NDArray[np.float64]:
    """Wherever they are."""
    return np.asarray(values.cpu() if isinstance(values, Tensor) else values, np.float64)
