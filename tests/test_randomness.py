"""Randomness is a function of place: same place, same number; and it passes for chance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bertwright.randomness import Permutation, bits, generator, integers, key, sample, uniform


def test_the_same_place_gives_the_same_number_alone_or_in_company() -> None:
    of = key(3, "corruption")
    rows, columns = np.arange(50)[:, None], np.arange(7)[None, :]
    together = uniform(of, 2, rows, columns)
    assert together.shape == (50, 7)
    assert all(uniform(of, 2, r, c) == together[r, c] for r in (0, 17, 49) for c in (0, 6))


def test_numbers_do_not_change_between_versions() -> None:
    assert key(0, "corruption", "replace") == 0xB27A3E21055E3181
    assert int(bits(1, 2, 3)) == 0xBD9468C61A2B7E40


def test_purposes_seeds_and_places_are_independent() -> None:
    places = np.arange(20_000)
    streams = [
        uniform(key(0, "masks"), places),
        uniform(key(1, "masks"), places),
        uniform(key(0, "dropout"), places),
        uniform(key(0, "masks"), places, 1),
        uniform(key(0, "masks"), 1, places),
    ]
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlation).max() < 4.5 / np.sqrt(len(places))


def test_the_order_of_coordinates_matters() -> None:
    assert bits(5, 1, 2) != bits(5, 2, 1)


def test_keys_do_not_run_together() -> None:
    assert key(0, "ab", "c") != key(0, "a", "bc")


@pytest.mark.parametrize("seed", range(5))
def test_uniform_is_uniform(seed: int) -> None:
    drawn = uniform(key(seed, "test"), np.arange(300), np.arange(300)[:, None]).ravel()
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    # Neighbours too: pairs fill the square.
    cells = np.histogram2d(drawn[:-1], drawn[1:], bins=16)[0]
    assert stats.chisquare(cells.ravel()).pvalue > 1e-4


@pytest.mark.parametrize("bound", [1, 2, 7, 30_522])
def test_integers_stay_below_their_bound_and_hit_all(bound: int) -> None:
    drawn = integers(key(0, "test"), bound, np.arange(200_000))
    assert drawn.min() == 0
    assert drawn.max() == bound - 1
    if bound > 1:
        counts = np.bincount(drawn, minlength=bound)
        assert stats.chisquare(counts).pvalue > 1e-4


def test_a_generator_belongs_to_its_place() -> None:
    first, again, other = generator(1, 2, 3), generator(1, 2, 3), generator(1, 2, 4)
    drawn = first.integers(1 << 60, size=4)
    assert (drawn == again.integers(1 << 60, size=4)).all()
    assert (drawn != other.integers(1 << 60, size=4)).all()


@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_a_permutation_is_a_bijection(size: int, of: int) -> None:
    assert (np.sort(Permutation(size, of)(np.arange(size))) == np.arange(size)).all()


@pytest.mark.parametrize("size", [*range(1, 70), 255, 256, 257, 65_535, 65_536, 65_537])
def test_a_permutation_is_a_bijection_at_the_edges(size: int) -> None:
    assert np.unique(Permutation(size, 7)(np.arange(size))).size == size


@given(st.integers(1, 2**40), st.data())
def test_a_permutation_of_any_size_stays_in_range(size: int, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5, unique=True))
    permutation = Permutation(size, 11)
    together = permutation(np.array(index))
    assert ((together >= 0) & (together < size)).all()
    assert np.unique(together).size == len(index)
    assert [int(permutation(i)) for i in index] == together.tolist()


def test_permutations_of_different_keys_are_unrelated() -> None:
    size = 5000
    first, second = Permutation(size, key(0, 0)), Permutation(size, key(0, 1))
    places = np.arange(size)
    assert abs(np.corrcoef(first(places), second(places))[0, 1]) < 4.5 / np.sqrt(size)
    assert abs(np.corrcoef(first(places), places)[0, 1]) < 4.5 / np.sqrt(size)


def test_every_element_may_come_first() -> None:
    size = 6
    first = [int(Permutation(size, key(seed))(0)) for seed in range(3000)]
    assert stats.chisquare(np.bincount(first, minlength=size)).pvalue > 1e-4


def test_nothing_cannot_be_permuted() -> None:
    with pytest.raises(ValueError, match="at least one element"):
        Permutation(0, 1)


@given(st.integers(0, 60), st.integers(1, 60))
def test_a_sample_is_as_many_as_there_are_of_all_of_them(size: int, number: int) -> None:
    found = sample(range(size), number)
    assert len(set(found)) == len(found) == min(size, number)
    assert found == sample(iter(range(size)), number)


def test_a_sample_of_what_is_sorted_is_from_all_over() -> None:
    found = np.array(sample(range(10_000), 1_000))
    assert np.abs(np.histogram(found, 10, (0, 10_000))[0] - 100).max() < 50
