"""What is taken of the pieces that a model finds likely."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.model.generating.decoding import Decoding, share_of

CHANCES = np.array([[0.1, 0.4, 0.05, 0.25, 0.2]])
SHARES = np.linspace(0, 1, 2000, endpoint=False)


def frequencies(decoding: Decoding, present: tuple[int, ...] = ()) -> np.ndarray:
    """How often each piece is taken, over random numbers that are spread evenly."""
    logits = np.repeat(np.log(CHANCES), len(SHARES), axis=0)
    taken = decoding.choose(logits, [present] * len(SHARES), SHARES)
    return np.bincount(taken, minlength=5) / len(SHARES)


def test_pieces_are_taken_as_often_as_they_are_likely() -> None:
    np.testing.assert_allclose(frequencies(Decoding()), CHANCES[0], atol=1e-3)


def test_temperature_sharpens_or_flattens() -> None:
    cold = CHANCES[0] ** 2 / (CHANCES[0] ** 2).sum()
    np.testing.assert_allclose(frequencies(Decoding(temperature=0.5)), cold, atol=1e-3)
    assert frequencies(Decoding(temperature=0))[1] == 1


def test_top_k_leaves_the_k_most_probable() -> None:
    expected = np.array([0, 0.4, 0, 0.25, 0.2]) / 0.85
    np.testing.assert_allclose(frequencies(Decoding(top_k=3)), expected, atol=1e-3)


@pytest.mark.parametrize(("top_p", "left"), [(0.4, [1]), (0.41, [1, 3]), (0.85, [1, 3, 4])])
def test_top_p_leaves_the_fewest_that_hold_the_share(top_p: float, left: list[int]) -> None:
    found = frequencies(Decoding(top_p=top_p))
    assert np.flatnonzero(found).tolist() == left
    np.testing.assert_allclose(found[left], CHANCES[0, left] / CHANCES[0, left].sum(), atol=1e-3)


def test_top_p_counts_what_top_k_has_left() -> None:
    # Of the two that are left the first holds 0.4 / 0.65, which is more than 0.6.
    assert np.flatnonzero(frequencies(Decoding(top_k=2, top_p=0.6))).tolist() == [1]


def test_a_penalty_makes_what_is_there_less_likely() -> None:
    logits = np.array([[2.0, -1.0, 0.5]])
    penalised = Decoding(repetition_penalty=2.0).penalised(logits, [[0, 1, 1]])
    assert penalised.tolist() == [[1.0, -2.0, 0.5]]
    assert logits.tolist() == [[2.0, -1.0, 0.5]]


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 5), st.floats(0.01, 1))
def test_what_may_not_come_never_comes(share: float, top_k: int, top_p: float) -> None:
    logits = np.array([[-np.inf, 1.0, -np.inf, 0.3, -np.inf]])
    for temperature in (0.0, 0.7):
        decoding = Decoding(top_k=top_k, top_p=top_p, temperature=temperature)
        assert decoding.choose(logits, [[0, 3]], np.array([share]))[0] in (1, 3)


def test_a_random_number_is_one_of_its_seed_prompt_sample_and_place() -> None:
    base = (0, [2, 9], 0, 0)
    others = [(1, [2, 9], 0, 0), (0, [2, 8], 0, 0), (0, [2, 9], 1, 0), (0, [2, 9], 0, 1)]
    assert share_of(*base) == share_of(*base)
    assert share_of(*base) not in {share_of(*other) for other in others}
