"""Published claims, and verdicts on whether they hold for a model."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bertwright.analysis.core.result import Count, StoredResult, null_non_finite
from bertwright.core.verdicts import Verdict, VerdictLabel, label_of_interval, units_needed

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
        negligible: Size below which a difference is none; None if every difference counts.
        count: What the value was counted from; None if it was not counted.
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
    negligible: float | None = None
    count: Count | None = None

    @property
    def value_text(self) -> str:
        """The value for people: with its interval, or as a count such as 31 of 72 heads."""
        if self.count is not None:
            return str(self.count)
        if self.interval is None:
            return _readable_number(self.value)
        low, high = map(_readable_number, self.interval)
        return f"{_readable_number(self.value)} [{low}, {high}]"

    @property
    def baseline_text(self) -> str:
        """The baseline for people, with its name; counted in the same things as the value."""
        baseline = self.baseline
        count = self.count
        if count is not None and self.value * count.total == count.number:
            baseline *= count.total
        return f"{_readable_number(baseline)} ({self.baseline_name})"

    @property
    def outcome(self) -> Verdict:
        """The verdict from the interval.

        Without an interval, the value alone decides; a p-value of 0.05 or more decides nothing.
        """
        if not (math.isfinite(self.value) and math.isfinite(self.baseline)):
            return Verdict("invalid design", "these texts contain no examples of it")
        label, needs_more = self._label(), self.interval is None and self.p_value is None
        required = MIN_UNITS_WITHOUT_INTERVAL if needs_more else MIN_UNITS
        if self.num_units is not None and self.num_units < required and label != "undecided":
            reason = f"{self.num_units} texts are too few: {required} are needed"
            return Verdict("undecided", reason, required)
        if label != "undecided":
            return Verdict(label)
        if self.interval is None or self.num_units is None:
            return Verdict(label, "the value may be chance")
        needed = units_needed(
            *self._excess(self.interval), self.num_units, negligible=self.negligible
        )
        return Verdict(label, units_needed=needed)

    @property
    def verdict(self) -> VerdictLabel:
        """The label of the verdict."""
        return self.outcome.label

    @property
    def verdict_text(self) -> str:
        """The verdict with its reason, or with the number of texts that would decide."""
        return self.outcome.text("texts")

    def _label(self) -> VerdictLabel:
        if self.p_value is not None and self.p_value >= 0.05:
            return "undecided"
        low, high = self._excess(self.interval or (self.value, self.value))
        return label_of_interval(low, high, negligible=self.negligible)

    def _excess(self, interval: tuple[float, float]) -> tuple[float, float]:
        """Return the interval of the difference to the baseline, positive if as claimed."""
        low, high = (bound - self.baseline for bound in interval)
        return (low, high) if self.direction == "above" else (-high, -low)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-compatible data."""
        count = {} if self.count is None else {"count": dict(vars(self.count))}
        fields = {name: value for name, value in vars(self).items() if name != "count"}
        return null_non_finite({**fields, **count, **self.outcome.as_dict()})


def _readable_number(value: float) -> str:
    return f"{value:.3g}"


def significant_findings(
    sign: Literal[1, -1], unit: str, prefix: str = "", as_fraction: bool = True
) -> Callable[[StoredResult], Mapping[str, Any]]:
    """Return a function that counts findings significantly above (1) or below (-1) 0.

    ``unit`` names what has one finding each, such as heads.
    """

    def count(result: StoredResult) -> Mapping[str, Any]:
        is_significant = [
            f["adjusted_p_value"] < 0.05 and sign * f["value"] > 0
            for f in result.findings
            if f["metric"].startswith(prefix)
        ]
        number, total = sum(is_significant), len(is_significant)
        return result.counted_finding(number, total, unit, as_fraction)

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
        negligible: Size below which a difference is none; None if every difference counts.
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
    negligible: float | None = None

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
            self.negligible,
            Count(**finding["count"]) if "count" in finding else None,
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
