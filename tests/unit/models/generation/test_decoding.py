"""Sampling settings choose tokens from logits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.models.generation.config import GenerationConfig, sampling_uniform

PROBABILITIES = np.array([[0.1, 0.4, 0.05, 0.25, 0.2]])
UNIFORMS = np.linspace(0, 1, 2000, endpoint=False)


def frequencies(config: GenerationConfig, present: tuple[int, ...] = ()) -> np.ndarray:
    """How often each token is sampled, over evenly spaced random numbers."""
    logits = np.repeat(np.log(PROBABILITIES), len(UNIFORMS), axis=0)
    sampled = config.sample(logits, [present] * len(UNIFORMS), UNIFORMS)
    return np.bincount(sampled, minlength=5) / len(UNIFORMS)


def test_frequencies_equal_probabilities() -> None:
    np.testing.assert_allclose(frequencies(GenerationConfig()), PROBABILITIES[0], atol=1e-3)


def test_temperature_sharpens_or_flattens() -> None:
    cold = PROBABILITIES[0] ** 2 / (PROBABILITIES[0] ** 2).sum()
    np.testing.assert_allclose(frequencies(GenerationConfig(temperature=0.5)), cold, atol=1e-3)
    assert frequencies(GenerationConfig(temperature=0))[1] == 1


def test_top_k_keeps_the_k_most_probable() -> None:
    expected = np.array([0, 0.4, 0, 0.25, 0.2]) / 0.85
    np.testing.assert_allclose(frequencies(GenerationConfig(top_k=3)), expected, atol=1e-3)


@pytest.mark.parametrize(("top_p", "kept"), [(0.4, [1]), (0.41, [1, 3]), (0.85, [1, 3, 4])])
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float, kept: list[int]) -> None:
    actual = frequencies(GenerationConfig(top_p=top_p))
    assert np.flatnonzero(actual).tolist() == kept
    np.testing.assert_allclose(
        actual[kept], PROBABILITIES[0, kept] / PROBABILITIES[0, kept].sum(), atol=1e-3
    )


def test_top_p_applies_after_top_k() -> None:
    # Of the two kept, the first has 0.4 / 0.65, which is more than 0.6.
    assert np.flatnonzero(frequencies(GenerationConfig(top_k=2, top_p=0.6))).tolist() == [1]


def test_a_penalty_makes_present_tokens_less_likely() -> None:
    logits = np.array([[2.0, -1.0, 0.5]])
    penalised = GenerationConfig(repetition_penalty=2.0).penalise_repetition(logits, [[0, 1, 1]])
    assert penalised.tolist() == [[1.0, -2.0, 0.5]]
    assert logits.tolist() == [[2.0, -1.0, 0.5]]


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 5), st.floats(0.01, 1))
def test_excluded_tokens_are_never_sampled(uniform: float, top_k: int, top_p: float) -> None:
    logits = np.array([[-np.inf, 1.0, -np.inf, 0.3, -np.inf]])
    for temperature in (0.0, 0.7):
        config = GenerationConfig(top_k=top_k, top_p=top_p, temperature=temperature)
        assert config.sample(logits, [[0, 3]], np.array([uniform]))[0] in (1, 3)


def test_random_numbers_depend_on_seed_prompt_sample_and_position() -> None:
    base = (0, [2, 9], 0, 0)
    others = [(1, [2, 9], 0, 0), (0, [2, 8], 0, 0), (0, [2, 9], 1, 0), (0, [2, 9], 0, 1)]
    assert sampling_uniform(*base) == sampling_uniform(*base)
    assert sampling_uniform(*base) not in {sampling_uniform(*other) for other in others}
