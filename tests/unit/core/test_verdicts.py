"""Labels of intervals, sequential looks, and the repetitions that would decide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.verdicts import (
    LOOK_LEVELS,
    MAX_SEQUENTIAL_REPETITIONS,
    decide,
    decide_sequentially,
    label_of_interval,
    look_error,
    look_sizes,
    repetitions_needed,
    units_needed,
)

bounds = st.tuples(st.floats(-2, 2), st.floats(-2, 2)).map(sorted)


@pytest.mark.parametrize(
    ("interval", "margin", "negligible", "label"),
    [
        ((0.1, 0.3), 0.0, None, "seen"),
        ((-0.3, -0.1), 0.0, None, "opposite"),
        ((-0.1, 0.1), 0.0, None, "undecided"),
        ((-0.01, 0.01), 0.0, 0.02, "no difference"),
        ((0.001, 0.01), 0.0, 0.02, "no difference"),
        ((0.001, 0.03), 0.0, 0.02, "seen"),
        ((0.1, 0.3), 0.2, None, "undecided"),
        ((0.05, 0.1), 0.2, None, "undecided"),
        ((-0.02, 0.1), -0.03, None, "seen"),
        ((-0.02, -0.01), -0.03, None, "seen"),
        ((-0.2, -0.1), -0.03, None, "opposite"),
        ((-0.2, -0.01), -0.03, None, "undecided"),
        ((-0.01, 0.01), -0.03, 0.02, "seen"),
    ],
)
def test_labels(
    interval: tuple[float, float], margin: float, negligible: float | None, label: str
) -> None:
    assert label_of_interval(*interval, margin, negligible) == label


@given(bounds, st.sampled_from([None, 0.1, 1.0]))
def test_mirrored_interval_has_the_opposite_label(
    interval: list[float], negligible: float | None
) -> None:
    mirrored = {"seen": "opposite", "opposite": "seen"}
    label = label_of_interval(*interval, negligible=negligible)
    low, high = interval
    assert label_of_interval(-high, -low, negligible=negligible) == mirrored.get(label, label)


@given(bounds, st.floats(0, 1), st.floats(-1, 1))
def test_narrower_interval_stays_decided(
    interval: list[float], position: float, margin: float
) -> None:
    low, high = interval
    middle = low + position * (high - low)
    label = label_of_interval(low, high, margin, 0.5)
    if label in ("seen", "opposite"):
        assert label_of_interval(middle, middle, margin, 0.5) in (label, "no difference")


def test_two_repetitions_are_too_few() -> None:
    effect, verdict = decide([1.0, 1.0001])
    assert (verdict.label, verdict.units_needed) == ("undecided", 3)
    assert effect.mean == pytest.approx(1.00005)


def test_looks_together_err_in_five_per_cent() -> None:
    """Under equality, an early look decides wrongly no more often than 5 % in all."""
    repetitions, sizes = 20_000, look_sizes(12)
    samples = np.random.default_rng(0).standard_normal((repetitions, 12))
    # The same rule as decide_sequentially, without building an object for every look.
    from scipy.stats import ttest_1samp

    p_values = np.stack([ttest_1samp(samples[:, :size], 0, axis=1).pvalue for size in sizes])
    error = float((p_values < look_error(12)).any(axis=0).mean())
    assert 0.04 < error < 0.054
    wrong = [decide_sequentially(row, max_repetitions=12)[1].is_decided for row in samples[:400]]
    assert wrong == (p_values < look_error(12)).any(axis=0)[:400].tolist()


def test_levels_fall_with_the_number_of_looks() -> None:
    assert list(LOOK_LEVELS) == sorted(LOOK_LEVELS, reverse=True)
    assert LOOK_LEVELS[0] == 0.05
    assert look_error(MAX_SEQUENTIAL_REPETITIONS) == LOOK_LEVELS[-1]
    for wrong in (0, 2, 4, 27):
        with pytest.raises(ValueError, match="multiple of 3 up to 24"):
            look_error(wrong)


def test_first_look_that_decides_counts() -> None:
    differences = [1.0, 1.01, 0.99, -50.0, 30.0, -40.0]
    effect, verdict = decide_sequentially(differences, max_repetitions=12)
    assert (verdict.label, effect.num_values) == ("seen", 3)
    effect, verdict = decide_sequentially(differences[1:], max_repetitions=12)
    assert (verdict.label, effect.num_values) == ("undecided", 5)


@given(
    st.lists(st.floats(-1, 1), min_size=3, max_size=8),
    st.sampled_from([None, 0.3]),
    st.sampled_from([0.0, -0.2, 0.2]),
)
def test_needed_repetitions_decide(
    differences: list[float], negligible: float | None, margin: float
) -> None:
    effect, verdict = decide(differences, margin, negligible)
    if verdict.units_needed is None:
        return
    assert verdict.label == "undecided"
    assert verdict.units_needed > len(differences)
    # As many values with the same mean and spread decide; one fewer do not.
    for count, is_decided in ((verdict.units_needed, True), (verdict.units_needed - 1, False)):
        values = np.resize([-1.0, 1.0], count)
        values = (values - values.mean()) / values.std(ddof=1) * effect.standard_deviation
        if count > len(differences):
            again = decide((values + effect.mean).tolist(), margin, negligible)[1]
            assert again.is_decided == is_decided


def test_needed_repetitions_of_an_effect_on_a_boundary() -> None:
    effect, verdict = decide([-1.0, 0.0, 1.0])
    assert verdict.units_needed is None
    assert repetitions_needed(effect, negligible=2.0) == 4


def test_needed_units_shrink_the_interval_with_their_root() -> None:
    assert units_needed(-0.25, 0.75, 100) == 400
    assert units_needed(-0.1, 0.1, 100) is None
    assert units_needed(-0.1, 0.1, 100, negligible=0.05) == 400
