"""What a difference over many texts is worth: intervals by resampling texts, tests by permutation,
and what becomes of many tests at once. On scipy.

The unit that is drawn is the text, never the token: tokens of a text are alike. A figure is a ratio
of two sums over texts, so that accuracies over words, F1 and means per text are one case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]

DRAWS, PERMUTATIONS = 2_000, 10_000
"""Of an interval, and of a test."""


@dataclass(frozen=True)
class Interval:
    """A figure over texts, with a two-sided percentile interval; both ends nan for a single text.
    All is nan where there is nothing to divide by."""

    value: float
    low: float
    high: float
    num_units: int

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def of_ratio(
    parts: ArrayLike, wholes: ArrayLike | None = None, *, level: float = 0.95, seed: int = 0
) -> Interval:
    """The sum of ``parts`` (N,) over that of ``wholes`` (N,), drawn text by text; without
    ``wholes`` the mean of the parts."""
    part = np.asarray(parts, np.float64)
    whole = np.ones_like(part) if wholes is None else np.asarray(wholes, np.float64)
    drawn = _ratios(_draws(len(part), seed), part, whole)
    return _interval(_ratio(part.sum(), whole.sum()), drawn, len(part), level)


def of_ratios(
    parts: Floats, wholes: Floats | None = None, *, level: float = 0.95, seed: int = 0
) -> list[Interval]:
    """The same of many figures over the same texts, ``parts`` and ``wholes`` (N, K)."""
    whole = np.ones_like(parts) if wholes is None else wholes
    drawn = _ratios(_draws(len(parts), seed), parts, whole)
    values = [_ratio(*sums) for sums in zip(parts.sum(0), whole.sum(0), strict=True)]
    return [
        _interval(value, own, len(parts), level) for value, own in zip(values, drawn.T, strict=True)
    ]


def of_difference(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The difference of two such ratios, each as parts and wholes (N,), over the same texts."""
    (part, whole), (other, all_other) = (
        (np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in (first, second)
    )
    draws = _draws(len(part), seed)
    value = _ratio(part.sum(), whole.sum()) - _ratio(other.sum(), all_other.sum())
    drawn = _ratios(draws, part, whole) - _ratios(draws, other, all_other)
    return _interval(value, drawn, len(part), level)


def of_runs(parts: Floats, wholes: Floats, *, level: float = 0.95, seed: int = 0) -> Interval:
    """The sum of ``parts`` (R, N) over that of ``wholes`` (N,) in the mean over R runs of training,
    which are its units: texts are drawn, and so are runs, whose mean lies about the true one as
    Student's t says, for of so few draws of themselves are too much alike. Of two ways whose runs
    are pairs the ``parts`` are the differences."""
    number, num_texts = parts.shape
    mean, value = parts.mean(0), _ratio(parts.sum() / number, wholes.sum())
    if number < 2:
        return Interval(value, float("nan"), float("nan"), number)
    generator = np.random.default_rng(seed + 1)
    away = generator.normal(size=(DRAWS, number)) / np.sqrt(number * (number - 1))
    away /= np.sqrt(generator.chisquare(number - 1, (DRAWS, 1)) / (number - 1))
    draws = _draws(num_texts, seed)
    drawn, sums = (draws * (mean + away @ (parts - mean))).sum(1), draws @ wholes
    ratios = np.divide(drawn, sums, out=np.full(DRAWS, np.nan), where=sums != 0)
    return _interval(value, ratios, min(number, num_texts), level)


def of_means(first: Floats, second: Floats, *, level: float = 0.95, seed: int = 0) -> Interval:
    """The mean of ``first`` (N,) less that of ``second`` (M,), which are of other texts: both are
    drawn, and the fewer of them are its units."""
    means = (_draws(len(first), seed) @ first / len(first), _draws(len(second), seed + 1) @ second)
    drawn = means[0] - means[1] / len(second)
    number = min(len(first), len(second))
    return _interval(first.mean() - second.mean(), drawn, number, level)


def of_sums(
    figure: Callable[[Floats], Floats],
    first: Floats,
    second: Floats | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Interval, float]:
    """A ``figure`` of sums over texts, of ``first`` (N, K), less that of ``second`` (N, K) over the
    same texts; and how often as many texts say that it lies on the other side of 0, or at 0, twice:
    the paired bootstrap (Koehn 2004). ``figure`` takes sums (..., K) to (...)."""
    draws = _draws(len(first), seed)
    value, drawn = figure(first.sum(0)), figure(draws @ first)
    if second is not None:
        value, drawn = value - figure(second.sum(0)), drawn - figure(draws @ second)
    chance = min(1.0, 2 * float(min((drawn <= 0).mean(), (drawn >= 0).mean())))
    return _interval(float(value), drawn, len(first), level), chance


def of_count(count: int, number: int, *, level: float = 0.95) -> Interval:
    """The share that so many of a number are, of items that have nothing to do with each other: the
    exact binomial interval (Clopper and Pearson 1934)."""
    found: Any = stats.binomtest(count, number).proportion_ci(level, "exact")
    return Interval(count / number, float(found.low), float(found.high), number)


def sign_flips(differences: ArrayLike, *, seed: int = 0) -> float:
    """How often chance gives paired differences (N,) whose mean is as far from 0, either way:
    always where there are fewer than two."""
    if np.size(differences) < 2:
        return 1.0
    found: Any = stats.permutation_test(
        (np.asarray(differences, np.float64),),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        batch=max(1, 10**7 // max(np.size(differences), 1)),
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def label_permutations(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> float:
    """How often chance gives two groups (N,), (M,) whose means are as far apart:
    always where one has fewer than two."""
    if min(np.size(first), np.size(second)) < 2:
        return 1.0
    found: Any = stats.permutation_test(
        (np.asarray(first, np.float64), np.asarray(second, np.float64)),
        _lead,
        permutation_type="independent",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        batch=max(1, 10**7 // max(np.size(first) + np.size(second), 1)),
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """How often chance tells two classifiers as far apart on the same items: exact, by those that
    only one of them has right."""
    right, other = np.asarray(first, np.bool_), np.asarray(second, np.bool_)
    only, only_other = int((right & ~other).sum()), int((other & ~right).sum())
    if only + only_other == 0:
        return 1.0
    return float(stats.binomtest(only, only + only_other).pvalue)


def benjamini_hochberg(chances: ArrayLike) -> Floats:
    """Of a family of tests (N,) the adjusted chances: those below q are a list of which a share of
    q at most is expected to be wrong."""
    return np.asarray(stats.false_discovery_control(np.asarray(chances, np.float64)), np.float64)


def holm(chances: ArrayLike) -> Floats:
    """Of a family of tests (N,) the adjusted chances: of those below q none is wrong, but with a
    chance of q (Holm 1979)."""
    own = np.asarray(chances, np.float64)
    order = np.argsort(own, kind="stable")
    steps = own[order] * np.arange(len(own), 0, -1)
    adjusted = np.empty_like(own)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def halves(number: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Texts by which something is chosen, and those on which it is judged: the best of many looks
    better than it is on the texts that chose it."""
    order = np.random.default_rng(seed).permutation(number)
    return np.sort(order[: number // 2]), np.sort(order[number // 2 :])


def is_distinguishable(difference: float, seeds: Sequence[float]) -> bool:
    """Whether a difference is more than two deviations of what seeds alone do."""
    return abs(difference) > 2 * float(np.std(seeds, ddof=1))


def _lead(first: Floats, second: Floats, axis: int) -> Any:
    return np.mean(first, axis) - np.mean(second, axis)


def _draws(number: int, seed: int) -> NDArray[np.int64]:
    """How often every text is drawn, (DRAWS, N)."""
    return np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), DRAWS)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _ratios(draws: NDArray[np.int64], part: Floats, whole: Floats) -> Floats:
    """The ratio in every draw; nan in one that has nothing to divide by."""
    sums = draws @ whole
    return np.divide(draws @ part, sums, out=np.full(sums.shape, np.nan), where=sums != 0)


def _interval(value: float, drawn: Floats, num_units: int, level: float) -> Interval:
    if num_units < 2 or np.isnan(drawn).all():
        return Interval(float(value), float("nan"), float("nan"), num_units)
    low, high = np.nanquantile(drawn, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(value), float(low), float(high), num_units)
