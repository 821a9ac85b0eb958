"""Statistics: an interval contains the truth as often as it says."""

import math

import numpy as np
import pytest

from bertwright.statistics import estimate, paired


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("count", [2, 5, 20])
def test_an_interval_covers_the_truth_as_often_as_it_says(level: float, count: int) -> None:
    repetitions = 1500
    samples = np.random.default_rng(count).normal(3.0, 2.0, (repetitions, count))
    estimates = [estimate(sample.tolist(), level) for sample in samples]
    covered = np.mean([e.low <= 3.0 <= e.high for e in estimates])
    assert abs(covered - level) < 4 * math.sqrt(level * (1 - level) / repetitions)


def test_mean_deviation_and_interval_of_three_numbers() -> None:
    result = estimate([1.0, 2.0, 3.0])
    assert (result.mean, result.deviation, result.count) == (2.0, 1.0, 3)
    assert result.high - result.mean == pytest.approx(4.302653 / math.sqrt(3))
    assert result.mean - result.low == pytest.approx(result.high - result.mean)
    assert str(result) == "2 [-0.4841, 4.484]"


def test_one_value_has_no_interval() -> None:
    result = estimate([0.5])
    assert result.mean == 0.5
    assert math.isnan(result.low)
    assert math.isnan(result.high)
    assert str(result) == "0.5"


def test_pairing_takes_out_what_both_share() -> None:
    shared = np.random.default_rng(0).normal(0, 10, 8)
    first, second = (shared + 1.0 + 0.01 * np.arange(8)).tolist(), shared.tolist()
    difference = paired(first, second)
    assert difference.low > 0.9
    assert estimate(first).low < 0 < estimate(first).high


def test_pairs_must_be_pairs() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        paired([1.0, 2.0], [1.0])
