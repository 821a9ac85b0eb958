"""Verdicts on whether a study's expectations hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.statistics import Estimate, estimate
from bertwright.studies.run import StudyResults
from bertwright.studies.study import Expectation

VerdictLabel = Literal["seen", "not seen", "opposite"]

MIN_SEEDS = 3


@dataclass(frozen=True)
class StudyVerdict:
    """An expectation with its outcome.

    ``lead`` is the margin by which the expectation holds, over the seeds. The label is *seen* if
    the 95 % interval over at least three seeds is above 0, *opposite* if the interval of the
    difference shows that the other arm leads, and otherwise *not seen* at this scale.
    """

    expectation: Expectation
    lead: Estimate
    label: VerdictLabel

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "expected": str(self.expectation),
            "lead": self.lead.mean,
            "interval": self.lead.interval,
            "seeds": self.lead.num_values,
            "verdict": self.label,
        }


def evaluate(expected: Sequence[Expectation], results: StudyResults) -> list[StudyVerdict]:
    """Return the verdict on every expectation."""
    return [_evaluate_one(expectation, results) for expectation in expected]


def default_expectation(results: StudyResults) -> tuple[Expectation, ...]:
    """Return the expectation that the first of two arms has a lower loss than the second.

    The loss is bits per byte, or the first objective's loss that both have; empty without either.
    """
    first, second = results
    names = [n for n in common_metrics(results) if n.endswith(("bits_per_byte", "_loss"))]
    names.sort(key=lambda name: not name.endswith("bits_per_byte"))
    return tuple(Expectation(measure=name, arm=first, below=second) for name in names[:1])


def overall_label(verdicts: Sequence[StudyVerdict]) -> VerdictLabel:
    """Return the label of a claim: seen if all its parts are, opposite if any part is."""
    labels = {verdict.label for verdict in verdicts}
    if "opposite" in labels:
        return "opposite"
    return "seen" if labels == {"seen"} else "not seen"


def metric_values(results: StudyResults, arm: str, name: str) -> list[float]:
    """Return the values of a metric of an arm by seed; raise UserError if it has none."""
    by_seed = results[arm]
    for metrics in by_seed.values():
        if name not in metrics:
            raise UserError(f"arm {arm} has no metric {name!r}{did_you_mean(name, metrics)}")
    return [by_seed[seed][name] for seed in sorted(by_seed)]


def has_metric(results: StudyResults, arm: str, name: str) -> bool:
    """Return whether an arm has a metric for every seed."""
    return all(name in metrics for metrics in results[arm].values())


def _evaluate_one(expectation: Expectation, results: StudyResults) -> StudyVerdict:
    values = metric_values(results, expectation.arm, expectation.measure)
    others = _other_values(expectation, results, len(values))
    sign = 1.0 if expectation.below is None else -1.0
    differences = [sign * (a - b) for a, b in zip(values, others, strict=True)]
    lead = estimate([difference - expectation.margin for difference in differences])
    return StudyVerdict(expectation, lead, _label(expectation, lead, estimate(differences)))


def _other_values(expectation: Expectation, results: StudyResults, seeds: int) -> list[float]:
    other = expectation.baseline
    if isinstance(other, str):
        return metric_values(results, other, expectation.other_measure or expectation.measure)
    return [other] * seeds


def _label(expectation: Expectation, lead: Estimate, difference: Estimate) -> VerdictLabel:
    if lead.num_values < MIN_SEEDS:
        return "not seen"
    if lead.low > 0:
        return "seen"
    # The other arm must lead, not only be less far behind than expected; a number cannot lead.
    another_leads = difference.high < 0 and isinstance(expectation.baseline, str)
    return "opposite" if another_leads and lead.high < 0 else "not seen"


def all_metrics(results: Mapping[str, Mapping[int, Mapping[str, float]]]) -> list[str]:
    """Return the metrics of any arm with any seed, in order."""
    return list(
        dict.fromkeys(
            name for seeds in results.values() for metrics in seeds.values() for name in metrics
        )
    )


def common_metrics(results: Mapping[str, Mapping[int, Mapping[str, float]]]) -> list[str]:
    """Return the metrics that every arm has with every seed, in order."""
    runs = [metrics for seeds in results.values() for metrics in seeds.values()]
    return [name for name in runs[0] if all(name in metrics for metrics in runs)]
