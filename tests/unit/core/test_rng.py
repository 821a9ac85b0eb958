"""Counter-based random numbers depend on coordinates only and pass statistical tests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bertwright.core.rng import (
    RandomPermutation,
    generator,
    integers,
    random_bits,
    sample,
    stream_key,
    uniform,
)


def test_numbers_depend_on_coordinates_only() -> None:
    key = stream_key(3, "corruption")
    rows, columns = np.arange(50)[:, None], np.arange(7)[None, :]
    together = uniform(key, 2, rows, columns)
    assert together.shape == (50, 7)
    assert all(uniform(key, 2, r, c) == together[r, c] for r in (0, 17, 49) for c in (0, 6))


def test_numbers_are_pinned() -> None:
    assert stream_key(0, "corruption", "replace") == 0xB27A3E21055E3181
    assert int(random_bits(1, 2, 3)) == 0xBD9468C61A2B7E40


def test_streams_seeds_and_coordinates_are_independent() -> None:
    positions = np.arange(20_000)
    streams = [
        uniform(stream_key(0, "masks"), positions),
        uniform(stream_key(1, "masks"), positions),
        uniform(stream_key(0, "dropout"), positions),
        uniform(stream_key(0, "masks"), positions, 1),
        uniform(stream_key(0, "masks"), 1, positions),
    ]
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlation).max() < 4.5 / np.sqrt(len(positions))


def test_order_of_coordinates_matters() -> None:
    assert random_bits(5, 1, 2) != random_bits(5, 2, 1)


def test_stream_parts_are_separated() -> None:
    assert stream_key(0, "ab", "c") != stream_key(0, "a", "bc")


@pytest.mark.parametrize("seed", range(5))
def test_uniform_is_uniform(seed: int) -> None:
    numbers = uniform(stream_key(seed, "test"), np.arange(300), np.arange(300)[:, None]).ravel()
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert stats.kstest(numbers, "uniform").pvalue > 1e-4
    # Neighbours too: pairs fill the square.
    cells = np.histogram2d(numbers[:-1], numbers[1:], bins=16)[0]
    assert stats.chisquare(cells.ravel()).pvalue > 1e-4


@pytest.mark.parametrize("bound", [1, 2, 7, 30_522])
def test_integers_cover_the_range(bound: int) -> None:
    numbers = integers(stream_key(0, "test"), bound, np.arange(200_000))
    assert numbers.min() == 0
    assert numbers.max() == bound - 1
    if bound > 1:
        counts = np.bincount(numbers, minlength=bound)
        assert stats.chisquare(counts).pvalue > 1e-4


def test_generator_depends_on_coordinates() -> None:
    first, again, other = generator(1, 2, 3), generator(1, 2, 3), generator(1, 2, 4)
    numbers = first.integers(1 << 60, size=4)
    assert (numbers == again.integers(1 << 60, size=4)).all()
    assert (numbers != other.integers(1 << 60, size=4)).all()


@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_permutation_is_a_bijection(size: int, key: int) -> None:
    assert (np.sort(RandomPermutation(size, key)(np.arange(size))) == np.arange(size)).all()


@pytest.mark.parametrize("size", [*range(1, 70), 255, 256, 257, 65_535, 65_536, 65_537])
def test_permutation_of_edge_sizes_is_a_bijection(size: int) -> None:
    assert np.unique(RandomPermutation(size, 7)(np.arange(size))).size == size


@given(st.integers(1, 2**40), st.data())
def test_permutation_stays_in_range(size: int, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5, unique=True))
    permutation = RandomPermutation(size, 11)
    together = permutation(np.array(index))
    assert ((together >= 0) & (together < size)).all()
    assert np.unique(together).size == len(index)
    assert [int(permutation(i)) for i in index] == together.tolist()


def test_permutations_of_different_keys_are_independent() -> None:
    size = 5000
    first, second = (
        RandomPermutation(size, stream_key(0, 0)),
        RandomPermutation(size, stream_key(0, 1)),
    )
    positions = np.arange(size)
    assert abs(np.corrcoef(first(positions), second(positions))[0, 1]) < 4.5 / np.sqrt(size)
    assert abs(np.corrcoef(first(positions), positions)[0, 1]) < 4.5 / np.sqrt(size)


def test_every_element_can_be_first() -> None:
    size = 6
    first = [int(RandomPermutation(size, stream_key(seed))(0)) for seed in range(3000)]
    assert stats.chisquare(np.bincount(first, minlength=size)).pvalue > 1e-4


def test_empty_permutation_raises() -> None:
    with pytest.raises(ValueError, match="at least one element"):
        RandomPermutation(0, 1)


@given(st.integers(0, 60), st.integers(1, 60))
def test_sample_size(size: int, num_samples: int) -> None:
    items = sample(range(size), num_samples)
    assert len(set(items)) == len(items) == min(size, num_samples)
    assert items == sample(iter(range(size)), num_samples)


def test_sample_is_uniform_over_the_input() -> None:
    items = np.array(sample(range(10_000), 1_000))
    assert np.abs(np.histogram(items, 10, (0, 10_000))[0] - 100).max() < 50
