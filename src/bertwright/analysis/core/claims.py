"""Published claims, and verdicts on whether they hold for a model."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bertwright.analysis.core.result import StoredResult, null_non_finite

ClaimVerdict = Literal["seen", "not seen", "opposite", "not testable"]

MIN_UNITS = 6
"""Minimum number of texts, or other sampled units, behind an interval: with fewer, chance alone
puts all of them on one side more than once in twenty times (2 / 2^N)."""

MIN_UNITS_WITHOUT_INTERVAL = 20
"""Minimum number of units behind a value without an interval or a test."""


@dataclass(frozen=True)
class ClaimResult:
    """A published claim with a value that should be ``above`` or ``below`` its baseline.

    Attributes:
        p_value: Probability of such a value by chance.
        num_units: Number of texts or other sampled units behind the value; None if nothing was
            sampled.
    """

    claim: str
    published: str
    value: float
    interval: tuple[float, float] | None
    baseline: float
    baseline_name: str
    direction: Literal["above", "below"] = "above"
    p_value: float | None = None
    num_units: int | None = None

    @property
    def not_testable_reason(self) -> str | None:
        """The reason why the claim cannot be tested; None if it can."""
        if not (math.isfinite(self.value) and math.isfinite(self.baseline)):
            return "these texts contain no examples of it"
        if self.num_units is None:
            return None
        required = MIN_UNITS_WITHOUT_INTERVAL if self.p_value is None else MIN_UNITS
        if self.interval is None and self.num_units < required:
            return f"only {self.num_units} units and no interval: {required} are needed"
        if self.num_units < MIN_UNITS and self._compare_with_baseline != "not seen":
            return f"only {self.num_units} units, too few to exclude chance: {MIN_UNITS} are needed"
        return None

    @property
    def verdict_text(self) -> str:
        """The verdict, with the reason if the claim is not testable."""
        reason = self.not_testable_reason
        return self.verdict if reason is None else f"{self.verdict}: {reason}"

    @property
    def verdict(self) -> ClaimVerdict:
        """The verdict from the interval: "seen" on the claimed side, "opposite" on the other.

        Without an interval, the value alone decides; a p-value of 0.05 or more gives "not seen".
        """
        return self._compare_with_baseline if self.not_testable_reason is None else "not testable"

    @property
    def _compare_with_baseline(self) -> ClaimVerdict:
        if self.p_value is not None and self.p_value >= 0.05:
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
        """Return JSON-compatible data."""
        reason = self.not_testable_reason
        extra = {} if reason is None else {"not_testable_reason": reason}
        return null_non_finite({**vars(self), "verdict": self.verdict, **extra})


def significant_findings(
    sign: Literal[1, -1], prefix: str = "", as_fraction: bool = True
) -> Callable[[StoredResult], Mapping[str, Any]]:
    """Return a function that counts findings significantly above (1) or below (-1) 0."""

    def count(result: StoredResult) -> Mapping[str, Any]:
        is_significant = [
            f["adjusted_p_value"] < 0.05 and sign * f["value"] > 0
            for f in result.findings
            if f["metric"].startswith(prefix)
        ]
        number = sum(is_significant)
        return result.computed_finding(number / len(is_significant) if as_fraction else number)

    return count


@dataclass(frozen=True)
class Claim:
    """A published claim about one finding, and on which side of its baseline it should be.

    Attributes:
        text, baseline_name: ``{layer}`` is replaced by the layer of the finding.
        metric: Metric of the finding, or a function that computes a finding from the result.
        baseline: None for the finding's own baseline.
        p_value: Key of the p-value in the finding, if a test also decides.
        layer: None for the finding over all layers; "any" for the only finding about a single
            layer.
        is_optional: True to omit the claim if the finding is missing.
    """

    text: str
    published: str
    metric: str | Callable[[StoredResult], Mapping[str, Any] | None]
    baseline: float | None = 0.0
    baseline_name: str = "no difference"
    direction: Literal["above", "below"] = "above"
    p_value: Literal["p_value", "adjusted_p_value"] | None = None
    layer: Literal["first", "middle", "last", "any"] | None = None
    is_optional: bool = False

    def check(self, result: StoredResult) -> ClaimResult | None:
        """Return the outcome of the claim; None if it is optional and its finding is missing.

        Errors: LookupError if the claim is not optional and its finding is missing.
        """
        finding = self._finding(result)
        if finding is None:
            return None
        layer, interval = finding.get("layer"), finding.get("interval")
        baseline: Mapping[str, Any] = (
            finding["baseline"]
            if self.baseline is None
            else {"name": self.baseline_name.format(layer=layer), "value": self.baseline}
        )
        return ClaimResult(
            self.text.format(layer=layer),
            self.published,
            finding["value"],
            None if interval is None else (interval[0], interval[1]),
            baseline["value"],
            baseline["name"],
            self.direction,
            None if self.p_value is None else finding[self.p_value],
            finding.get("num_units"),
        )

    def _finding(self, result: StoredResult) -> Mapping[str, Any] | None:
        if not isinstance(self.metric, str):
            return self.metric(result)
        findings = [
            finding
            for finding in result.findings
            if finding["metric"] == self.metric and ("layer" in finding) == (self.layer is not None)
        ]
        if not findings and self.is_optional:
            return None
        index = {"middle": len(findings) // 2, "last": -1}.get(self.layer or "first", 0)
        return findings[index]
