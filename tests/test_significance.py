"""Significance: intervals and tests are as sure as they say, planted cases are found."""

import numpy as np
import pytest
from scipy import stats

from bertwright.significance import (
    benjamini_hochberg,
    halves,
    holm,
    is_distinguishable,
    label_permutations,
    mcnemar,
    of_count,
    of_difference,
    of_means,
    of_ratio,
    of_runs,
    of_sums,
    sign_flips,
)

SIMULATIONS = 1000


def texts(generator: np.random.Generator, number: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Right answers and questions of texts of many lengths, each with a share of its own: 0.7 of
    them in the mean, however long."""
    wholes = generator.integers(1, 30, number)
    return generator.binomial(wholes, generator.beta(7, 3, number)), wholes


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    found = [of_ratio(*texts(generator), seed=n) for n in range(SIMULATIONS)]
    assert 0.93 <= np.mean([f.low <= 0.7 <= f.high for f in found]) <= 0.97


def test_a_paired_interval_covers_no_difference_as_often_as_it_says() -> None:
    generator, covered = np.random.default_rng(1), 0
    for number in range(SIMULATIONS):
        parts, wholes = texts(generator)
        other = np.clip(parts + generator.integers(-1, 2, len(parts)), 0, wholes)
        mirrored = generator.random(len(parts)) < 0.5
        first, second = np.where(mirrored, other, parts), np.where(mirrored, parts, other)
        found = of_difference((first, wholes), (second, wholes), seed=number)
        covered += found.low <= 0 <= found.high
    assert 0.93 <= covered / SIMULATIONS <= 0.97


def test_an_interval_of_two_groups_covers_no_difference_as_often_as_it_says() -> None:
    """Of few beside many, too: both are drawn."""
    generator = np.random.default_rng(2)
    missed = 0
    for number in range(300):
        found = of_means(generator.normal(size=12), generator.normal(size=60), seed=number)
        missed += not found.low <= 0 <= found.high
    assert 3 <= missed <= 36
    assert np.isnan(of_means(np.zeros(1), np.zeros(40)).low)


@pytest.mark.parametrize("runs", [3, 6])
@pytest.mark.parametrize("deviation", [0.005, 0.05])
def test_equal_ways_whose_runs_differ_are_told_apart_as_seldom_as_it_says(
    runs: int, deviation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More seldom where runs hardly differ: what chance does to a text in a run counts as one and
    as the other."""
    monkeypatch.setattr("bertwright.significance.DRAWS", 400)
    generator, told = np.random.default_rng(runs), 0
    for number in range(400):
        wholes, shares = generator.integers(8, 25, 60), generator.beta(8.5, 1.5, 60)
        lucky = generator.normal(0, deviation, (2, runs, 1))
        first, second = generator.binomial(wholes, np.clip(shares + lucky, 0, 1))
        found = of_runs(first - second, wholes, seed=number)
        told += found.low > 0 or found.high < 0
    margin = 2.5 * (0.05 * 0.95 / 400) ** 0.5
    assert told / 400 <= 0.05 + margin
    if deviation == 0.05:
        assert told / 400 >= 0.05 - margin


def test_an_interval_of_runs_is_of_as_many() -> None:
    wholes = np.full(40, 10.0)
    alike = of_runs(np.full((6, 40), 7.0), wholes)
    assert [alike.value, alike.low, alike.high] == pytest.approx([0.7, 0.7, 0.7])
    assert alike.num_units == 6
    assert np.isnan(of_runs(np.full((1, 40), 7.0), wholes).low)
    ahead = np.full((6, 40), 2.0) + np.random.default_rng(0).normal(size=(6, 1))
    assert of_runs(ahead, wholes).low > 0


def test_an_exact_interval_covers_the_truth_at_least_as_often_as_it_says() -> None:
    for share in (0.05, 0.3, 0.5):
        chances = stats.binom.pmf(np.arange(21), 20, share)
        found = [of_count(count, 20) for count in range(21)]
        assert sum(chances[n] for n, f in enumerate(found) if f.low <= share <= f.high) >= 0.95
    assert of_count(0, 20).high == pytest.approx(1 - 0.025 ** (1 / 20))
    assert of_count(0, 20).low == 0


def test_pairing_takes_out_what_both_share() -> None:
    parts, wholes = texts(np.random.default_rng(2))
    lead = of_difference((parts + 1, wholes), (parts, wholes))
    assert lead.low > 0
    assert lead.value == pytest.approx(len(parts) / wholes.sum())


def test_a_figure_of_sums_is_a_ratio_where_it_is_one() -> None:
    generator = np.random.default_rng(4)
    parts, wholes = texts(generator)
    other = np.clip(parts + generator.integers(-1, 2, len(parts)), 0, wholes)
    ratio = of_difference((parts, wholes), (other, wholes))
    first, second = (np.stack([own, wholes], 1).astype(float) for own in (parts, other))
    found, chance = of_sums(lambda sums: sums[..., 0] / sums[..., 1], first, second)
    assert found == ratio
    assert (chance < 0.05) == (not ratio.low <= 0 <= ratio.high)
    assert of_sums(lambda sums: sums[..., 0] / sums[..., 1], first, first)[1] == 1


@pytest.mark.parametrize("test", ["signs", "labels", "mcnemar"])
def test_chances_are_uniform_where_there_is_nothing(
    test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertwright.significance.PERMUTATIONS", 400)
    generator = np.random.default_rng(3)
    chances: list[float] = []
    for number in range(300):
        if test == "signs":
            chances.append(sign_flips(generator.normal(0, 1, 20), seed=number))
        elif test == "labels":
            first, second = generator.normal(0, 1, (2, 15))
            chances.append(label_permutations(first, second, seed=number))
        else:
            first, second = generator.random((2, 200)) < 0.7
            chances.append(mcnemar(first.tolist(), second.tolist()))
    if test == "mcnemar":
        # An exact test of counts is careful: it never says more than it may.
        assert np.mean(np.array(chances) < 0.05) <= 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5
    else:
        assert stats.kstest(chances, "uniform").pvalue > 0.01


def test_what_is_planted_is_found() -> None:
    assert sign_flips(np.full(12, 0.3)) < 0.01
    assert label_permutations(np.arange(10) + 20.0, np.arange(10)) < 0.01
    assert mcnemar([True] * 12, [False] * 12) == pytest.approx(2 * 0.5**12)
    assert mcnemar([True, False], [True, False]) == 1.0


def test_many_tests_at_once_by_hand() -> None:
    chances = [0.01, 0.04, 0.03, 0.5]
    np.testing.assert_allclose(benjamini_hochberg(chances), [0.04, 0.16 / 3, 0.16 / 3, 0.5])
    np.testing.assert_allclose(holm(chances), [0.04, 0.09, 0.09, 0.5])
    assert (holm(chances) >= benjamini_hochberg(chances) - 1e-12).all()


def test_halves_are_disjoint_and_whole() -> None:
    first, second = halves(9, seed=4)
    assert sorted([*first, *second]) == list(range(9))
    assert abs(len(first) - len(second)) <= 1


def test_one_text_has_no_interval_and_seeds_set_a_limit() -> None:
    assert np.isnan(of_ratio([1], [2]).low)
    assert str(of_ratio([1, 1], [2, 2])) == "0.5 [0.5, 0.5]"
    assert is_distinguishable(0.3, [0.0, 0.1, 0.2])
    assert not is_distinguishable(0.15, [0.0, 0.1, 0.2])
