"""Cosines of hidden states against their definitions (Ethayarajh 2019, section 3)."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.result import AnalysisResult
from bertwright.analysis.core.word_states import WordStates
from bertwright.analysis.geometry import contextuality
from bertwright.analysis.geometry.contextuality import (
    ANISOTROPY_INCREASE,
    EXPLAINABLE_VARIANCE,
    RANDOM_WORDS,
    SAME_WORD,
    SELF_SIMILARITY_DROP,
    WORD_AND_SENTENCE,
    Contextuality,
)
from experiments.analyses.models import small_model

NUM_TEXTS, VOCABULARY, WIDTH = 30, ("sun", "moon", "star", "sky", "rain", "snow"), 12


@pytest.fixture
def word_states() -> WordStates:
    """States of two layers in a cone; in the second the cone is narrower, and words are noisier."""
    generator = np.random.default_rng(0)
    words = [word for _ in range(NUM_TEXTS) for word in generator.permutation(VOCABULARY)]
    word_vectors = generator.normal(0, 1, (len(VOCABULARY), WIDTH))[
        [VOCABULARY.index(w) for w in words]
    ]
    text_ids = np.repeat(np.arange(NUM_TEXTS), len(VOCABULARY))
    texts = generator.normal(0, 0.5, (NUM_TEXTS, WIDTH))[text_ids]
    noise = generator.normal(0, 1, (2, len(words), WIDTH))
    states = [
        word_vectors + texts + 1.0 + 0.3 * noise[0],
        0.5 * word_vectors + texts + 2.0 + noise[1],
    ]
    return WordStates(np.stack(states).astype(np.float32), text_ids, tuple(words))


@pytest.fixture
def result(word_states: WordStates, monkeypatch: pytest.MonkeyPatch) -> AnalysisResult:
    monkeypatch.setattr(contextuality, "compute_word_states", lambda inputs: word_states)
    return Contextuality().run(AnalysisInput(small_model(), []))


def finding(result: AnalysisResult, metric: str, layer: int | None = None) -> float:
    (value,) = (f.value for f in result.findings if (f.metric, f.layer) == (metric, layer))
    return value


def cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def anisotropy(states: NDArray[np.float64], words: WordStates) -> float:
    """Return the mean cosine of all words of different texts."""
    units = states / np.linalg.norm(states, axis=1, keepdims=True)
    is_other = words.text_ids[:, None] != words.text_ids
    return float((units @ units.T)[is_other].mean())


def self_similarity(states: NDArray[np.float64], words: WordStates) -> float:
    """Return the mean over words of the mean cosine of two of their occurrences."""
    occurrences = [np.flatnonzero(np.array(words.words) == word) for word in VOCABULARY]
    cosines = [[cosine(states[i], states[j]) for i, j in combinations(o, 2)] for o in occurrences]
    return float(np.mean([np.mean(of_word) for of_word in cosines]))


def intra_sentence_similarity(states: NDArray[np.float64], words: WordStates) -> float:
    texts = [states[words.text_ids == text] for text in range(NUM_TEXTS)]
    return float(np.mean([cosine(word, text.mean(0)) for text in texts for word in text]))


# Random words are sampled, so that their mean cosine has an error.
TOLERANCE = 0.02


@pytest.mark.parametrize("layer", [0, 1])
def test_similarities_are_relative_to_random_words(result, word_states, layer: int) -> None:
    """Sections 3.3 and 3.4: the anisotropy of the layer is subtracted."""
    states = word_states.states[layer].astype(np.float64)
    random_words = anisotropy(states, word_states)
    assert random_words > 0.2
    assert finding(result, RANDOM_WORDS, layer) == pytest.approx(random_words, abs=TOLERANCE)
    for metric, similarity in (
        (SAME_WORD, self_similarity(states, word_states)),
        (WORD_AND_SENTENCE, intra_sentence_similarity(states, word_states)),
    ):
        assert result.arrays[metric][layer] == pytest.approx(similarity, abs=1e-6)
        adjusted = finding(result, metric, layer)
        assert adjusted == pytest.approx(similarity - random_words, abs=TOLERANCE)
        # Exactly what is reported as anisotropy is subtracted, from the interval as well.
        assert adjusted + finding(result, RANDOM_WORDS, layer) == pytest.approx(similarity)
        (of_metric,) = (f for f in result.findings if (f.metric, f.layer) == (metric, layer))
        assert of_metric.interval is not None
        assert of_metric.interval[0] < adjusted < of_metric.interval[1]


def test_differences_of_layers(result, word_states) -> None:
    first, last = (states.astype(np.float64) for states in word_states.states)
    anisotropies = [anisotropy(states, word_states) for states in (first, last)]
    increase = anisotropies[1] - anisotropies[0]
    assert finding(result, ANISOTROPY_INCREASE) == pytest.approx(increase, abs=TOLERANCE)
    same = [self_similarity(states, word_states) for states in (first, last)]
    drop = (same[1] - anisotropies[1]) - (same[0] - anisotropies[0])
    assert drop < -0.2
    assert finding(result, SELF_SIMILARITY_DROP) == pytest.approx(drop, abs=TOLERANCE)


def test_explainable_variance_is_relative_to_random_words(result, word_states) -> None:
    """Section 3.3: the first principal component's fraction, less that of random words."""

    def first_fraction(states: NDArray[np.float64]) -> float:
        values = np.linalg.eigvalsh(np.cov(states.T))
        return float(values[-1] / values.sum())

    generator = np.random.default_rng(1)
    for layer in (0, 1):
        states = word_states.states[layer].astype(np.float64)
        of_words = [first_fraction(states[np.array(word_states.words) == w]) for w in VOCABULARY]
        samples = [generator.choice(len(states), NUM_TEXTS, replace=False) for _ in range(200)]
        random_words = np.mean([first_fraction(states[sample]) for sample in samples])
        expected = np.mean(of_words) - random_words
        value = finding(result, EXPLAINABLE_VARIANCE, layer)
        assert value == pytest.approx(expected, abs=0.03)


def test_occurrences_of_one_text_are_not_compared() -> None:
    generator = np.random.default_rng(1)
    text_ids = np.sort(generator.integers(0, 9, 400))
    states = contextuality.unit_vectors(generator.normal(0.5, 1, (400, WIDTH)))
    words = tuple(generator.choice(VOCABULARY, 400))
    means, _ = contextuality.self_similarity(states, WordStates(states[None], text_ids, words), 5)
    expected = [
        np.mean(
            [
                states[i] @ states[j]
                for i, j in combinations(of_word, 2)
                if text_ids[i] < text_ids[j]
            ]
        )
        for word in dict.fromkeys(words)
        for of_word in [np.flatnonzero(np.array(words) == word)]
    ]
    np.testing.assert_allclose(means, expected, rtol=1e-9)
