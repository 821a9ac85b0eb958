"""A check of a compression method, with its measured values and its outcome."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bertwright.core.statistics import Estimate, estimate, paired_difference
from bertwright.core.verdicts import Verdict, decide
from experiments.analyses.expecting import ExpectedValue
from experiments.compressions.toy_models import ToyModels


@dataclass(frozen=True)
class MeasuredValue:
    """A value measured repeatedly, ``unit`` by unit, and that of a baseline under the same seeds.

    ``expected_side`` is the side of the baseline on which the values should be, None if nothing is
    expected: toy models show that machinery and signs are right, and no more. Differences smaller
    than ``negligible`` count as none. The opposite fails the check, unless the expectation
    ``is_claim`` of the source, on which a toy may decide either way.
    """

    name: str
    values: Sequence[float]
    baseline: str = ""
    baseline_values: Sequence[float] = ()
    expected_side: Literal["above", "below"] | None = None
    unit: str = "seeds"
    negligible: float | None = None
    is_claim: bool = False

    @property
    def mean(self) -> Estimate:
        """The mean with its interval."""
        return estimate(self.values)

    @property
    def lead(self) -> Estimate | None:
        """The difference to the baseline, pair by pair; None without one."""
        return paired_difference(self.values, self.baseline_values) if self.baseline else None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the expected side; None if nothing is expected."""
        if self.expected_side is None:
            return None
        if len(all_values := {*self.values, *self.baseline_values}) == 1:
            reason = f"all values are {all_values.pop():g}, so nothing could differ"
            return Verdict("invalid design", reason)
        sign = 1.0 if self.expected_side == "above" else -1.0
        pairs = zip(self.values, self.baseline_values, strict=True)
        differences = [sign * (value - other) for value, other in pairs]
        return decide(differences, negligible=self.negligible)[1]

    @property
    def contradicts(self) -> bool:
        """True if the values show the opposite of what must hold."""
        is_opposite = self.verdict is not None and self.verdict.label == "opposite"
        return is_opposite and not self.is_claim

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        result: dict[str, Any] = {
            "name": self.name,
            "unit": self.unit,
            "values": list(self.values),
            "mean": self.mean.mean,
            "interval": self.mean.interval,
        }
        if self.lead is not None:
            result["baseline"] = {"name": self.baseline, "values": list(self.baseline_values)}
            result["lead"], result["lead_interval"] = self.lead.mean, self.lead.interval
            result["expected_side"] = self.expected_side
            result |= {} if self.negligible is None else {"negligible": self.negligible}
            result |= {"is_claim": True} if self.is_claim else {}
            result |= {} if self.verdict is None else self.verdict.as_dict()
        return result

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> "MeasuredValue":
        """Return the value of :meth:`as_dict`."""
        baseline = stored.get("baseline", {"name": "", "values": ()})
        return MeasuredValue(
            stored["name"],
            stored["values"],
            baseline["name"],
            baseline["values"],
            stored.get("expected_side"),
            stored["unit"],
            stored.get("negligible"),
            stored.get("is_claim", False),
        )

    def __str__(self) -> str:
        return f"{self.name}: {format_estimate(self.mean)}{self._baseline_text()}"

    def _baseline_text(self) -> str:
        if self.lead is None:
            return ""
        side = (
            "" if self.verdict is None else f", expected {self.expected_side}: {self.verdict.label}"
        )
        return f"; less {self.baseline} {format_estimate(self.lead, '+')}{side}"


NEGLIGIBLE_ACCURACY = 0.02
"""A difference of accuracies that counts as none."""


def accuracy_claim(
    name: str, scores: Sequence[float], baseline: str, baseline_scores: Sequence[float]
) -> MeasuredValue:
    """Return the claim of a source that accuracies are above those of a baseline."""
    return MeasuredValue(
        f"accuracy, {name}",
        scores,
        baseline,
        baseline_scores,
        expected_side="above",
        negligible=NEGLIGIBLE_ACCURACY,
        is_claim=True,
    )


def format_estimate(estimate: Estimate, sign: str = "") -> str:
    """Format a mean, with its interval if it has one."""
    mean = f"{estimate.mean:{sign}.4g}"
    if estimate.interval is None:
        return mean
    return f"{mean} [{estimate.low:{sign}.4g}, {estimate.high:{sign}.4g}]"


CheckResults = Iterator[ExpectedValue | MeasuredValue]
"""The results of a check: exact ones and measured ones."""


@dataclass(frozen=True)
class CompressionCheck:
    """A check of a compression method.

    Attributes:
        number: that of the survey, C1.
        source: the publication.
        run: runs the check on the toy models.
        is_timed: True if it measures time, so that nothing may run in parallel.
    """

    number: str
    name: str
    hypothesis: str
    source: str
    run: Callable[[ToyModels], CheckResults]
    is_timed: bool = False


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check; ``error`` is the exception that ended it, if any."""

    check: CompressionCheck
    seconds: float
    checks: Sequence[ExpectedValue]
    values: Sequence[MeasuredValue]
    is_quick: bool
    error: str = ""

    @property
    def problems(self) -> list[str]:
        """Everything that failed; a quick run does not assert measured values."""
        problems = [self.error] if self.error else []
        problems += [str(check) for check in self.checks if not check.is_met]
        return problems + [
            str(value) for value in self.values if value.contradicts and not self.is_quick
        ]

    @property
    def ok(self) -> bool:
        """True if nothing failed."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; an infinite bound is None."""
        result: dict[str, Any] = {
            "id": self.check.number,
            "name": self.check.name,
            "question": self.check.hypothesis,
            "source": self.check.source,
            "ok": self.ok,
            "quick": self.is_quick,
            "seconds": self.seconds,
            "checks": [
                {
                    "name": check.description,
                    "value": check.value,
                    "low": check.low if math.isfinite(check.low) else None,
                    "high": check.high if math.isfinite(check.high) else None,
                    "ok": check.is_met,
                }
                for check in self.checks
            ],
            "values": [value.as_dict() for value in self.values],
        }
        return result if self.ok else {**result, "problems": self.problems}

    @staticmethod
    def from_dict(check: CompressionCheck, stored: Mapping[str, Any]) -> "CheckOutcome":
        """Return the outcome of :meth:`as_dict`, for a check that was completed."""
        checks = [
            ExpectedValue(
                item["name"],
                item["value"],
                -math.inf if item["low"] is None else item["low"],
                math.inf if item["high"] is None else item["high"],
            )
            for item in stored["checks"]
        ]
        values = [MeasuredValue.from_dict(item) for item in stored["values"]]
        return CheckOutcome(check, stored["seconds"], checks, values, stored["quick"])

    def __str__(self) -> str:
        name = f"{self.check.number:>5}  {self.check.name:24} {self.seconds:6.1f} s  "
        if not self.ok:
            return f"{name}MISS: {'; '.join(self.problems)}"
        return f"{name}{len(self.checks)} checks hold, {len(self.values)} values"
