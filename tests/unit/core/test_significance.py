"""Coverage of intervals and error rates of tests."""

import numpy as np
import pytest
from scipy import stats

from bertwright.core.significance import (
    benjamini_hochberg,
    binomial_interval,
    bootstrap_difference,
    bootstrap_mean_difference,
    bootstrap_ratio,
    bootstrap_runs,
    bootstrap_statistic,
    holm,
    mcnemar_test,
    permutation_test,
    sign_flip_test,
    split_halves,
)

SIMULATIONS = 1000


def simulate_texts(
    generator: np.random.Generator, number: int = 60
) -> tuple[np.ndarray, np.ndarray]:
    """Return correct answers and questions of texts of varying length, with a mean rate of 0.7."""
    denominators = generator.integers(1, 30, number)
    return generator.binomial(denominators, generator.beta(7, 3, number)), denominators


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resample less often: what an interval covers hardly depends on it."""
    monkeypatch.setattr("bertwright.core.significance.NUM_RESAMPLES", 400)


@pytest.mark.usefixtures("few_resamples")
def test_interval_coverage() -> None:
    generator = np.random.default_rng(0)
    intervals = [bootstrap_ratio(*simulate_texts(generator), seed=n) for n in range(SIMULATIONS)]
    assert 0.93 <= np.mean([i.low <= 0.7 <= i.high for i in intervals]) <= 0.97


@pytest.mark.usefixtures("few_resamples")
def test_paired_interval_coverage() -> None:
    generator, num_covered = np.random.default_rng(1), 0
    for number in range(SIMULATIONS):
        numerators, denominators = simulate_texts(generator)
        other = np.clip(numerators + generator.integers(-1, 2, len(numerators)), 0, denominators)
        mirrored = generator.random(len(numerators)) < 0.5
        first, second = np.where(mirrored, other, numerators), np.where(mirrored, numerators, other)
        interval = bootstrap_difference((first, denominators), (second, denominators), seed=number)
        num_covered += interval.low <= 0 <= interval.high
    assert 0.93 <= num_covered / SIMULATIONS <= 0.97


@pytest.mark.usefixtures("few_resamples")
def test_two_sample_interval_coverage() -> None:
    """Both groups are resampled, also if one is much smaller."""
    generator = np.random.default_rng(2)
    num_missed = 0
    for number in range(300):
        interval = bootstrap_mean_difference(
            generator.normal(size=12), generator.normal(size=60), seed=number
        )
        num_missed += not interval.low <= 0 <= interval.high
    assert 3 <= num_missed <= 36
    assert np.isnan(bootstrap_mean_difference(np.zeros(1), np.zeros(40)).low)


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("runs", [3, 6])
@pytest.mark.parametrize("deviation", [0.005, 0.05])
def test_runs_interval_false_positive_rate(runs: int, deviation: float) -> None:
    """The rate is lower if runs hardly differ."""
    generator, num_significant = np.random.default_rng(runs), 0
    for number in range(400):
        denominators, rates = generator.integers(8, 25, 60), generator.beta(8.5, 1.5, 60)
        run_effects = generator.normal(0, deviation, (2, runs, 1))
        first, second = generator.binomial(denominators, np.clip(rates + run_effects, 0, 1))
        interval = bootstrap_runs(first - second, denominators, seed=number)
        num_significant += interval.low > 0 or interval.high < 0
    margin = 2.5 * (0.05 * 0.95 / 400) ** 0.5
    assert num_significant / 400 <= 0.05 + margin
    if deviation == 0.05:
        assert num_significant / 400 >= 0.05 - margin


def test_runs_interval() -> None:
    denominators = np.full(40, 10.0)
    equal_runs = bootstrap_runs(np.full((6, 40), 7.0), denominators)
    assert [equal_runs.value, equal_runs.low, equal_runs.high] == pytest.approx([0.7, 0.7, 0.7])
    assert equal_runs.num_units == 6
    assert np.isnan(bootstrap_runs(np.full((1, 40), 7.0), denominators).low)
    better_runs = np.full((6, 40), 2.0) + np.random.default_rng(0).normal(size=(6, 1))
    assert bootstrap_runs(better_runs, denominators).low > 0


def test_binomial_interval_coverage() -> None:
    for rate in (0.05, 0.3, 0.5):
        p_values = stats.binom.pmf(np.arange(21), 20, rate)
        interval = [binomial_interval(count, 20) for count in range(21)]
        assert sum(p_values[n] for n, f in enumerate(interval) if f.low <= rate <= f.high) >= 0.95
    assert binomial_interval(0, 20).high == pytest.approx(1 - 0.025 ** (1 / 20))
    assert binomial_interval(0, 20).low == 0


def test_pairing_removes_shared_variance() -> None:
    numerators, denominators = simulate_texts(np.random.default_rng(2))
    difference = bootstrap_difference((numerators + 1, denominators), (numerators, denominators))
    assert difference.low > 0
    assert difference.value == pytest.approx(len(numerators) / denominators.sum())


def test_statistic_of_a_ratio_matches_bootstrap_difference() -> None:
    generator = np.random.default_rng(4)
    numerators, denominators = simulate_texts(generator)
    other = np.clip(numerators + generator.integers(-1, 2, len(numerators)), 0, denominators)
    ratio = bootstrap_difference((numerators, denominators), (other, denominators))
    first, second = (
        np.stack([values, denominators], 1).astype(float) for values in (numerators, other)
    )
    interval, p_value = bootstrap_statistic(lambda sums: sums[..., 0] / sums[..., 1], first, second)
    assert interval == ratio
    assert (p_value < 0.05) == (not ratio.low <= 0 <= ratio.high)
    assert bootstrap_statistic(lambda sums: sums[..., 0] / sums[..., 1], first, first)[1] == 1


@pytest.mark.parametrize("test", ["signs", "labels", "mcnemar"])
def test_p_values_are_uniform_under_the_null(test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.core.significance.NUM_PERMUTATIONS", 400)
    generator = np.random.default_rng(3)
    p_values: list[float] = []
    for number in range(300):
        if test == "signs":
            p_values.append(sign_flip_test(generator.normal(0, 1, 20), seed=number))
        elif test == "labels":
            first, second = generator.normal(0, 1, (2, 15))
            p_values.append(permutation_test(first, second, seed=number))
        else:
            first, second = generator.random((2, 200)) < 0.7
            p_values.append(mcnemar_test(first.tolist(), second.tolist()))
    if test == "mcnemar":
        # An exact test of counts is conservative.
        assert np.mean(np.array(p_values) < 0.05) <= 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5
    else:
        assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_true_differences_are_significant() -> None:
    assert sign_flip_test(np.full(12, 0.3)) < 0.01
    assert permutation_test(np.arange(10) + 20.0, np.arange(10)) < 0.01
    assert mcnemar_test([True] * 12, [False] * 12) == pytest.approx(2 * 0.5**12)
    assert mcnemar_test([True, False], [True, False]) == 1.0


def test_multiple_testing_corrections() -> None:
    p_values = [0.01, 0.04, 0.03, 0.5]
    np.testing.assert_allclose(benjamini_hochberg(p_values), [0.04, 0.16 / 3, 0.16 / 3, 0.5])
    np.testing.assert_allclose(holm(p_values), [0.04, 0.09, 0.09, 0.5])
    assert (holm(p_values) >= benjamini_hochberg(p_values) - 1e-12).all()


def test_halves_are_disjoint_and_complete() -> None:
    first, second = split_halves(9, seed=4)
    assert sorted([*first, *second]) == list(range(9))
    assert abs(len(first) - len(second)) <= 1


def test_single_text_has_no_interval() -> None:
    assert np.isnan(bootstrap_ratio([1], [2]).low)
    assert str(bootstrap_ratio([1, 1], [2, 2])) == "0.5 [0.5, 0.5]"


def test_no_texts_cannot_be_resampled() -> None:
    with pytest.raises(ValueError, match="there are no texts"):
        bootstrap_ratio([], [])
