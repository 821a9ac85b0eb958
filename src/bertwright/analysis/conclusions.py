"""What was published, and whether it is so here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["seen", "not seen", "opposite", "not testable"]


@dataclass(frozen=True)
class Conclusion:
    """A claim, what was published of it, and a figure that is ``above`` or ``below`` its baseline
    where the claim is seen; ``chance`` is how often nothing at all gives as much."""

    claim: str
    published: str
    value: float
    interval: tuple[float, float] | None
    baseline: float
    baseline_name: str
    direction: Literal["above", "below"] = "above"
    chance: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Seen where the whole interval lies on the side that is claimed, opposite where it lies on
        the other; of a figure without an interval the figure alone says it, unless chance gives as
        much in one case of twenty."""
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
        return {**vars(self), "verdict": self.verdict}


def concluded(
    claim: str,
    published: str,
    finding: Mapping[str, Any],
    baseline: float | None = None,
    baseline_name: str = "",
    direction: Literal["above", "below"] = "above",
) -> Conclusion:
    """From a finding as it is stored, against its own baseline unless another is named."""
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
    )
