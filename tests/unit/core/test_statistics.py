"""Coverage of the interval of a mean."""

import math

import numpy as np
import pytest

from bertwright.core.statistics import estimate, paired_difference


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("count", [2, 5, 20])
def test_interval_coverage(level: float, count: int) -> None:
    repetitions = 1500
    samples = np.random.default_rng(count).normal(3.0, 2.0, (repetitions, count))
    estimates = [estimate(sample.tolist(), level) for sample in samples]
    coverage = np.mean([e.low <= 3.0 <= e.high for e in estimates])
    assert abs(coverage - level) < 4 * math.sqrt(level * (1 - level) / repetitions)


def test_mean_deviation_and_interval_of_three_numbers() -> None:
    result = estimate([1.0, 2.0, 3.0])
    assert (result.mean, result.standard_deviation, result.num_values) == (2.0, 1.0, 3)
    assert result.high - result.mean == pytest.approx(4.302653 / math.sqrt(3))
    assert result.mean - result.low == pytest.approx(result.high - result.mean)
    assert str(result) == "2 [-0.4841, 4.484]"


def test_no_values_have_no_mean() -> None:
    with pytest.raises(ValueError, match="there are no values"):
        estimate([])


def test_single_value_has_no_interval() -> None:
    result = estimate([0.5])
    assert result.mean == 0.5
    assert math.isnan(result.low)
    assert math.isnan(result.high)
    assert str(result) == "0.5"


def test_pairing_removes_shared_variance() -> None:
    shared = np.random.default_rng(0).normal(0, 10, 8)
    first, second = (shared + 1.0 + 0.01 * np.arange(8)).tolist(), shared.tolist()
    difference = paired_difference(first, second)
    assert difference.low > 0.9
    assert estimate(first).low < 0 < estimate(first).high


def test_unequal_lengths_raise() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        paired_difference([1.0, 2.0], [1.0])
