"""Verdicts on claims: what an interval says about an expected difference.

Studies, analyses and checks of compression methods share these rules.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy import special

from bertwright.core.statistics import Estimate, estimate

VerdictLabel = Literal["seen", "opposite", "no difference", "undecided", "invalid design"]

MIN_REPETITIONS = 3
"""Minimum number of paired repetitions behind a verdict."""

MAX_UNITS_NEEDED = 100_000
"""Largest number of repetitions or texts that is worth stating."""

LOOK_LEVELS = (0.05, 0.0265, 0.0195, 0.016, 0.0135, 0.012, 0.011, 0.0105)
"""Two-sided error of each of 1, 2, ... 8 looks at a growing number of repetitions.

The looks are at 3, 6, 9, ... repetitions and use Student's t. With equal errors at all looks
(Pocock 1977), these keep the error of the whole at 5 %; `tests/unit/core/test_verdicts.py`
simulates that.
"""

MAX_SEQUENTIAL_REPETITIONS = MIN_REPETITIONS * len(LOOK_LEVELS)


@dataclass(frozen=True)
class Verdict:
    """An outcome of a comparison with an expected direction.

    - *seen*: the interval lies above ``margin``
    - *opposite*: the interval lies below 0, or below ``margin`` if that is negative
    - *no difference*: the interval lies between -``negligible`` and ``negligible``
    - *undecided*: none of these; ``units_needed`` would decide at the present effect and spread
    - *invalid design*: the comparison cannot show anything, for the ``reason``
    """

    label: VerdictLabel
    reason: str = ""
    units_needed: int | None = None

    @property
    def is_decided(self) -> bool:
        """True unless more repetitions could change the verdict."""
        return self.label != "undecided"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data without empty values."""
        values = {"verdict": self.label, "reason": self.reason, "units_needed": self.units_needed}
        return {name: value for name, value in values.items() if value not in ("", None)}

    def text(self, unit: str) -> str:
        """Return the label with the reason, or with the number of units that would decide."""
        if self.reason:
            return f"{self.label}: {self.reason}"
        if self.is_decided:
            return self.label
        if self.units_needed is None:
            return f"{self.label}: more than {MAX_UNITS_NEEDED:,} {unit} would be needed"
        return f"{self.label}: {self.units_needed:,} {unit} would decide"


def label_of_interval(
    low: float, high: float, margin: float = 0.0, negligible: float | None = None
) -> VerdictLabel:
    """Return the label for the interval of a difference that should be above ``margin``.

    A ``margin`` below 0 means that almost as good is enough. Differences smaller than
    ``negligible`` in either direction count as none; None if no difference does.
    """
    is_negligible = negligible is not None and -negligible < low and high < negligible
    if is_negligible and margin >= 0:
        return "no difference"
    if low > margin:
        return "seen"
    if high < min(margin, 0.0):
        return "opposite"
    return "no difference" if is_negligible else "undecided"


def decide(
    differences: Sequence[float],
    margin: float = 0.0,
    negligible: float | None = None,
    *,
    error: float = 0.05,
) -> tuple[Estimate, Verdict]:
    """Return the mean of paired differences with its interval at 1 - ``error``, and the verdict."""
    effect = estimate(differences, 1 - error)
    if effect.num_values < MIN_REPETITIONS:
        return effect, Verdict("undecided", units_needed=MIN_REPETITIONS)
    label = label_of_interval(effect.low, effect.high, margin, negligible)
    if label != "undecided":
        return effect, Verdict(label)
    needed = repetitions_needed(effect, margin, negligible, error)
    return effect, Verdict("undecided", units_needed=needed)


def decide_sequentially(
    differences: Sequence[float],
    margin: float = 0.0,
    negligible: float | None = None,
    *,
    max_repetitions: int,
) -> tuple[Estimate, Verdict]:
    """Return the estimate and verdict of the first of several looks that decides.

    The looks are at 3, 6, 9, ... up to ``max_repetitions`` paired differences, in order. If none
    decides, the estimate is that over all of them. Errors: ValueError for more than 24.
    """
    error = look_error(max_repetitions)
    looked_at = differences[: min(len(differences), max_repetitions)]
    for size in look_sizes(len(looked_at)):
        effect, verdict = decide(looked_at[:size], margin, negligible, error=error)
        if verdict.is_decided:
            return effect, verdict
    return decide(looked_at, margin, negligible, error=error)


def look_sizes(max_repetitions: int) -> range:
    """Return the numbers of repetitions at which a sequential comparison looks."""
    return range(MIN_REPETITIONS, max_repetitions + 1, MIN_REPETITIONS)


def look_error(max_repetitions: int) -> float:
    """Return the two-sided error of every look, so that all together have an error of 5 %.

    Errors: ValueError unless ``max_repetitions`` is a multiple of 3, at most 24.
    """
    looks, rest = divmod(max_repetitions, MIN_REPETITIONS)
    if rest or not 1 <= looks <= len(LOOK_LEVELS):
        raise ValueError(
            f"must be a multiple of {MIN_REPETITIONS} up to {MAX_SEQUENTIAL_REPETITIONS}"
        )
    return LOOK_LEVELS[looks - 1]


def repetitions_needed(
    effect: Estimate, margin: float = 0.0, negligible: float | None = None, error: float = 0.05
) -> int | None:
    """Return how many repetitions would decide, if the mean and the spread stay as they are.

    None if more than 100,000 would be needed.
    """
    gap = _distance_to_decision(effect.mean, margin, negligible)
    if gap <= 0.0:
        return None

    def decides(count: int) -> bool:
        quantile = float(special.stdtrit(count - 1, 1 - error / 2))
        return quantile * effect.standard_deviation / math.sqrt(count) < gap

    # Half the interval shrinks with every repetition.
    counts = range(max(effect.num_values + 1, MIN_REPETITIONS), MAX_UNITS_NEEDED + 1)
    index = bisect_left(counts, True, key=decides)
    return counts[index] if index < len(counts) else None


def units_needed(
    low: float,
    high: float,
    num_units: int,
    margin: float = 0.0,
    negligible: float | None = None,
) -> int | None:
    """Return how many sampled units would decide, if an interval shrinks with their square root.

    None if more than 100,000 would be needed.
    """
    gap = _distance_to_decision((low + high) / 2, margin, negligible)
    if gap <= 0.0 or not math.isfinite(gap):
        return None
    needed = max(num_units + 1, math.ceil(num_units * ((high - low) / (2 * gap)) ** 2))
    return needed if needed <= MAX_UNITS_NEEDED else None


def _distance_to_decision(mean: float, margin: float, negligible: float | None) -> float:
    """Return how wide half an interval around ``mean`` may be to decide."""
    distances = [mean - margin, min(margin, 0.0) - mean]
    if negligible is not None:
        distances.append(negligible - abs(mean))
    return max(distances)
