"""Verdicts on whether a study's expectations hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.statistics import Estimate
from bertwright.core.verdicts import Verdict, VerdictLabel, decide, decide_sequentially
from bertwright.studies.study import Expectation, Study, StudyResults

NEAR_BOUND = 0.05
"""Distance from chance or from a perfect score, as a fraction of the range between them, within
which two arms cannot be compared."""


LABELS_OF_CLAIMS: tuple[VerdictLabel, ...] = (
    "invalid design",
    "opposite",
    "undecided",
    "no difference",
)
"""Labels of a claim with several parts, the first before the others; seen only if all parts are."""


@dataclass(frozen=True)
class StudyVerdict:
    """An expectation with its outcome.

    ``effect`` is the difference between the arm and what it is compared with, positive in the
    expected direction, over the seeds that the verdict needed.
    """

    expectation: Expectation
    effect: Estimate
    verdict: Verdict

    @property
    def label(self) -> VerdictLabel:
        """The label of the verdict."""
        return self.verdict.label

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "expected": str(self.expectation),
            "effect": self.effect.mean,
            "interval": self.effect.interval,
            "seeds": self.effect.num_values,
            **self.verdict.as_dict(),
        }


def evaluate(
    study: Study, results: StudyResults, max_seeds: int | None = None
) -> list[StudyVerdict]:
    """Return the verdict on every expectation of a study.

    With ``max_seeds`` the results come from a sequential study: the first look that decides counts,
    and intervals are wider, so that all looks together err in 5 % of the cases.
    """
    return [_evaluate_one(study, expected, results, max_seeds) for expected in study.expected]


def default_expectation(results: StudyResults) -> tuple[Expectation, ...]:
    """Return the expectation that the first of two arms has a lower loss than the second.

    The loss is bits per byte, or the first objective's loss that both have; empty without either.
    """
    first, second = results
    names = [n for n in common_metrics(results) if n.endswith(("bits_per_byte", "_loss"))]
    names.sort(key=lambda name: not name.endswith("bits_per_byte"))
    return tuple(Expectation(measure=name, arm=first, below=second) for name in names[:1])


def overall_label(verdicts: Sequence[StudyVerdict]) -> VerdictLabel:
    """Return the label of a claim: the first of ``LABELS_OF_CLAIMS`` that a part has, or seen."""
    labels = {verdict.label for verdict in verdicts}
    for label in LABELS_OF_CLAIMS:
        if label in labels:
            return label
    return "seen"


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


def _evaluate_one(
    study: Study, expectation: Expectation, results: StudyResults, max_seeds: int | None
) -> StudyVerdict:
    values = metric_values(results, expectation.arm, expectation.measure)
    others = _other_values(expectation, results, len(values))
    sign = 1.0 if expectation.below is None else -1.0
    # Arms that other expectations need may have more seeds.
    differences = [sign * (a - b) for a, b in zip(values, others, strict=False)]
    margin = expectation.margin
    negligible = study.negligible_difference(expectation)
    if max_seeds is None:
        effect, verdict = decide(differences, margin, negligible)
    else:
        effect, verdict = decide_sequentially(
            differences, margin, negligible, max_repetitions=max_seeds
        )
    is_almost_as_good = verdict.label == "seen" and margin < 0
    if isinstance(expectation.baseline, str) and (
        is_almost_as_good or verdict.label in ("no difference", "undecided")
    ):
        reason = _bound_reason(study, expectation.measure, fmean(values), fmean(others))
        if reason is not None:
            verdict = Verdict("invalid design", reason)
    return StudyVerdict(expectation, effect, verdict)


def _bound_reason(study: Study, metric: str, value: float, other: float) -> str | None:
    """Return why two scores cannot differ: both at chance, or both perfect; None if they can."""
    bounds = study.bounds_of(metric)
    if bounds is None:
        return None
    lowest, highest = bounds
    tolerance = NEAR_BOUND * (highest - lowest)
    if max(value, other) < lowest + tolerance:
        return f"both are at chance ({value:.4g} and {other:.4g}, chance is {lowest:g})"
    if min(value, other) > highest - tolerance:
        return f"both are perfect ({value:.4g} and {other:.4g} of {highest:g})"
    return None


def _other_values(expectation: Expectation, results: StudyResults, seeds: int) -> list[float]:
    other = expectation.baseline
    if isinstance(other, str):
        return metric_values(results, other, expectation.other_measure or expectation.measure)
    return [other] * seeds


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
