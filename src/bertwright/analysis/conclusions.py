"""What was published, and whether it is so here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bertwright.analysis.findings import plain

Verdict = Literal["seen", "not seen", "opposite", "not testable"]

FEWEST = 6
"""Texts, or other things that were drawn, by which an interval can decide: of fewer, chance alone
lays all on one side more than once in twenty, 2 / 2^N."""

FEWEST_ALONE = 20
"""By which a figure can that has neither an interval nor a test."""


@dataclass(frozen=True)
class Conclusion:
    """A claim, what was published of it, and a figure that is ``above`` or ``below`` its baseline
    where the claim is seen; ``chance`` is how often nothing at all gives as much. ``num_units`` are
    the texts, or other things that were drawn, that it is of; None where none were."""

    claim: str
    published: str
    value: float
    interval: tuple[float, float] | None
    baseline: float
    baseline_name: str
    direction: Literal["above", "below"] = "above"
    chance: float | None = None
    num_units: int | None = None

    @property
    def lacks(self) -> str | None:
        """Why it is not testable, in words."""
        if not (math.isfinite(self.value) and math.isfinite(self.baseline)):
            return "nothing of it is in these texts"
        number, alone = self.num_units, FEWEST_ALONE if self.chance is None else FEWEST
        if number is None:
            return None
        if self.interval is None and number < alone:
            return f"it is of {number}, without an interval: {alone} are needed"
        if number < FEWEST and self._told != "not seen":
            return f"it is of {number}, which chance lays on one side: {FEWEST} are needed"
        return None

    @property
    def told(self) -> str:
        """The verdict, and why there is none."""
        return self.verdict if self.lacks is None else f"{self.verdict}: {self.lacks}"

    @property
    def verdict(self) -> Verdict:
        """Seen where the whole interval lies on the side that is claimed, opposite where it lies on
        the other; of a figure without an interval the figure alone says it, unless chance gives as
        much in one case of twenty. Of too few nothing is said."""
        return self._told if self.lacks is None else "not testable"

    @property
    def _told(self) -> Verdict:
        if self.chance is not None and self.chance >= 0.05:
            return "not seen"
        low, high = self.interval or (self.value, self.value)
        if self.direction == "below":
            low, high, limit = -high, -low, -self.baseline
        else:
            limit = self.baseline
        if low > limit:
            return "seen"
        return "opposite" if high < limit else "not seen"

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        lacks = {} if self.lacks is None else {"lacks": self.lacks}
        return plain({**vars(self), "verdict": self.verdict, **lacks})


def concluded(
    claim: str,
    published: str,
    finding: Mapping[str, Any],
    baseline: float | None = None,
    baseline_name: str = "",
    direction: Literal["above", "below"] = "above",
    num_units: int | None = None,
) -> Conclusion:
    """From a finding as it is stored, against its own baseline and of its own units unless others
    are named."""
    own = finding.get("baseline", {"name": baseline_name, "value": baseline})
    interval = finding.get("interval")
    return Conclusion(
        claim,
        published,
        finding["value"],
        None if interval is None else (interval[0], interval[1]),
        own["value"] if baseline is None else baseline,
        own["name"] if baseline is None else baseline_name,
        direction,
        num_units=finding.get("num_units") if num_units is None else num_units,
    )
