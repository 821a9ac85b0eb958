"""Bootstrap intervals, permutation tests and corrections for multiple tests.

Texts are resampled, not tokens, because tokens of the same text are not independent. A statistic is
a ratio of two sums over texts: an accuracy over words, F1, or a mean per text.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

FloatArray = NDArray[np.float64]

NUM_RESAMPLES, NUM_PERMUTATIONS = 2_000, 10_000
"""Number of resamples for an interval, and of permutations for a test."""


@dataclass(frozen=True)
class ConfidenceInterval:
    """A value with a two-sided percentile interval.

    ``low`` and ``high`` are nan if there is only one unit to resample; all three are nan if the
    denominator is 0.
    """

    value: float
    low: float
    high: float
    num_units: int

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def bootstrap_ratio(
    numerators: ArrayLike,
    denominators: ArrayLike | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> ConfidenceInterval:
    """Return sum(numerators) / sum(denominators), (N,) each, with its bootstrap interval.

    Without denominators the value is the mean of the numerators.
    """
    top = np.asarray(numerators, np.float64)
    bottom = np.ones_like(top) if denominators is None else np.asarray(denominators, np.float64)
    resampled = _ratios(_bootstrap_counts(len(top), seed), top, bottom)
    return _percentile_interval(_ratio(top.sum(), bottom.sum()), resampled, len(top), level)


def bootstrap_ratios(
    numerators: FloatArray,
    denominators: FloatArray | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> list[ConfidenceInterval]:
    """Return :func:`bootstrap_ratio` for K ratios over the same texts, from arrays (N, K)."""
    bottom = np.ones_like(numerators) if denominators is None else denominators
    resampled = _ratios(_bootstrap_counts(len(numerators), seed), numerators, bottom)
    values = [_ratio(*sums) for sums in zip(numerators.sum(0), bottom.sum(0), strict=True)]
    return [
        _percentile_interval(value, column, len(numerators), level)
        for value, column in zip(values, resampled.T, strict=True)
    ]


def bootstrap_difference(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> ConfidenceInterval:
    """Return the difference of two ratios over the same texts, with its bootstrap interval.

    ``first`` and ``second`` are pairs (numerators, denominators), (N,) each.
    """
    (top_1, bottom_1), (top_2, bottom_2) = (
        (np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in (first, second)
    )
    counts = _bootstrap_counts(len(top_1), seed)
    value = _ratio(top_1.sum(), bottom_1.sum()) - _ratio(top_2.sum(), bottom_2.sum())
    resampled = _ratios(counts, top_1, bottom_1) - _ratios(counts, top_2, bottom_2)
    return _percentile_interval(value, resampled, len(top_1), level)


def bootstrap_runs(
    numerators: FloatArray, denominators: FloatArray, *, level: float = 0.95, seed: int = 0
) -> ConfidenceInterval:
    """Return the mean ratio over R training runs, with an interval over runs and texts.

    ``numerators`` are (R, N), ``denominators`` (N,). Texts are resampled; variation over runs
    follows Student's t, because a bootstrap over few runs is too narrow. To compare two methods
    with paired runs, pass the differences as numerators.
    """
    num_runs, num_texts = numerators.shape
    mean, value = numerators.mean(0), _ratio(numerators.sum() / num_runs, denominators.sum())
    if num_runs < 2:
        return ConfidenceInterval(value, float("nan"), float("nan"), num_runs)
    rng = np.random.default_rng(seed + 1)
    deviations = rng.normal(size=(NUM_RESAMPLES, num_runs)) / np.sqrt(num_runs * (num_runs - 1))
    deviations /= np.sqrt(rng.chisquare(num_runs - 1, (NUM_RESAMPLES, 1)) / (num_runs - 1))
    counts = _bootstrap_counts(num_texts, seed)
    tops = (counts * (mean + deviations @ (numerators - mean))).sum(1)
    bottoms = counts @ denominators
    ratios = np.divide(tops, bottoms, out=np.full(NUM_RESAMPLES, np.nan), where=bottoms != 0)
    return _percentile_interval(value, ratios, min(num_runs, num_texts), level)


def bootstrap_mean_difference(
    first: FloatArray, second: FloatArray, *, level: float = 0.95, seed: int = 0
) -> ConfidenceInterval:
    """Return mean(first) - mean(second) of independent samples (N,) and (M,), with its interval."""
    means = (
        _bootstrap_counts(len(first), seed) @ first / len(first),
        _bootstrap_counts(len(second), seed + 1) @ second,
    )
    resampled = means[0] - means[1] / len(second)
    num_units = min(len(first), len(second))
    return _percentile_interval(first.mean() - second.mean(), resampled, num_units, level)


def bootstrap_statistic(
    statistic: Callable[[FloatArray], FloatArray],
    first: FloatArray,
    second: FloatArray | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[ConfidenceInterval, float]:
    """Return a statistic of sums over texts with its interval and two-sided p-value.

    ``statistic`` maps sums (..., K) to (...); ``first`` and ``second`` are (N, K) over the same
    texts. With ``second`` the value is the difference: the paired bootstrap (Koehn 2004).
    """
    counts = _bootstrap_counts(len(first), seed)
    value, resampled = statistic(first.sum(0)), statistic(counts @ first)
    if second is not None:
        value, resampled = value - statistic(second.sum(0)), resampled - statistic(counts @ second)
    p_value = min(1.0, 2 * float(min((resampled <= 0).mean(), (resampled >= 0).mean())))
    return _percentile_interval(float(value), resampled, len(first), level), p_value


def binomial_interval(
    num_successes: int, num_trials: int, *, level: float = 0.95
) -> ConfidenceInterval:
    """Return the success rate of independent trials with its exact binomial interval.

    Source: Clopper and Pearson 1934.
    """
    interval: Any = stats.binomtest(num_successes, num_trials).proportion_ci(level, "exact")
    return ConfidenceInterval(
        num_successes / num_trials, float(interval.low), float(interval.high), num_trials
    )


def sign_flip_test(differences: ArrayLike, *, seed: int = 0) -> float:
    """Return the two-sided p-value of paired differences (N,) by a sign-flip test.

    It is 1 for fewer than two differences.
    """
    return _permutation_p_value([np.asarray(differences, np.float64)], np.mean, "samples", seed)


def permutation_test(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> float:
    """Return the two-sided p-value of a difference of means of two groups (N,), (M,).

    It is 1 if a group has fewer than two values.
    """
    groups = [np.asarray(first, np.float64), np.asarray(second, np.float64)]
    return _permutation_p_value(groups, _mean_difference, "independent", seed)


def mcnemar_test(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Return the exact p-value of McNemar's test for the correctness of two classifiers."""
    correct_1, correct_2 = np.asarray(first, np.bool_), np.asarray(second, np.bool_)
    only_1, only_2 = int((correct_1 & ~correct_2).sum()), int((correct_2 & ~correct_1).sum())
    if only_1 + only_2 == 0:
        return 1.0
    return float(stats.binomtest(only_1, only_1 + only_2).pvalue)


def benjamini_hochberg(p_values: ArrayLike) -> FloatArray:
    """Return p-values (N,) adjusted to control the false discovery rate."""
    return np.asarray(stats.false_discovery_control(np.asarray(p_values, np.float64)), np.float64)


def holm(p_values: ArrayLike) -> FloatArray:
    """Return p-values (N,) adjusted to control the family-wise error rate (Holm 1979)."""
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def split_halves(num_items: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the item indices in two random halves: one for selection, one for evaluation."""
    order = np.random.default_rng(seed).permutation(num_items)
    return np.sort(order[: num_items // 2]), np.sort(order[num_items // 2 :])


def _permutation_p_value(
    samples: Sequence[FloatArray], statistic: Callable[..., Any], kind: str, seed: int
) -> float:
    if min(map(len, samples)) < 2:
        return 1.0
    result: Any = stats.permutation_test(
        samples,
        statistic,
        permutation_type=kind,
        vectorized=True,
        n_resamples=NUM_PERMUTATIONS,
        batch=max(1, 10**7 // sum(map(len, samples))),
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def _mean_difference(first: FloatArray, second: FloatArray, axis: int) -> Any:
    return np.mean(first, axis) - np.mean(second, axis)


def _bootstrap_counts(num_texts: int, seed: int) -> NDArray[np.int64]:
    """Return how often each resample contains each text, (NUM_RESAMPLES, N)."""
    if not num_texts:
        raise ValueError("there are no texts to resample")
    return np.random.default_rng(seed).multinomial(
        num_texts, np.full(num_texts, 1 / num_texts), NUM_RESAMPLES
    )


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")


def _ratios(
    counts: NDArray[np.int64], numerators: FloatArray, denominators: FloatArray
) -> FloatArray:
    """Return the ratio of every resample; nan where its denominator is 0."""
    sums = counts @ denominators
    return np.divide(counts @ numerators, sums, out=np.full(sums.shape, np.nan), where=sums != 0)


def _percentile_interval(
    value: float, resampled: FloatArray, num_units: int, level: float
) -> ConfidenceInterval:
    if num_units < 2 or np.isnan(resampled).all():
        return ConfidenceInterval(float(value), float("nan"), float("nan"), num_units)
    low, high = np.nanquantile(resampled, [0.5 - level / 2, 0.5 + level / 2])
    return ConfidenceInterval(float(value), float(low), float(high), num_units)


def spearman(first: Sequence[float] | FloatArray, second: Sequence[float] | FloatArray) -> float:
    """Return Spearman's rank correlation; 0 if one side is constant."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    correlation: Any = stats.spearmanr(first, second)
    value = float(correlation.statistic)
    return value if math.isfinite(value) else 0.0
