"""Gaussian states, cones, and static vectors."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.word_states import WordStates
from bertwright.analysis.geometry.contextuality import (
    SAME_WORD,
    Contextuality,
    max_explainable_variance,
    random_word_similarity,
    self_similarity,
    unit_vectors,
    zero_largest_dimensions,
)
from bertwright.analysis.geometry.sense_sentences import SENSE_SENTENCES
from bertwright.analysis.geometry.sentence_vectors import nearest_is_match
from bertwright.analysis.geometry.word_senses import WordSenses, same_sense_fraction
from experiments.analyses.expectations.probing import planted_states
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_verdicts,
)
from experiments.analyses.models import WORDS, small_inputs, small_model
from experiments.analyses.trees import random_trees


def expect_contextuality() -> Iterator[ExpectedValue]:
    """Check cosines of Gaussian states and of a cone, a word on a line, and static embeddings."""
    for offset in (0.0, 8.0):
        word_states = _gaussian_states(offset)
        states = word_states.states[0]
        units = unit_vectors(states)
        sums, counts = random_word_similarity(units, word_states, 0)
        same, _ = self_similarity(units, word_states, 5)
        expected = offset**2 / (offset**2 + 64)
        yield expect_equal("of random words", sums.sum() / counts.sum(), expected, 0.02)
        yield expect_equal("of one word", same.mean(), expected, 0.02)
        units = unit_vectors(zero_largest_dimensions(states))
        sums, counts = random_word_similarity(units, word_states, 0)
        yield expect_equal("without the largest dimensions", sums.sum() / counts.sum(), 0, 0.02)
        variance, _ = max_explainable_variance(states, word_states, 5, 0)
        yield expect_equal("explainable variance", variance.mean(), 0, 0.01)
    word_states = _gaussian_states(0.0)
    is_first = np.array(word_states.words) == word_states.words[0]
    line = np.linspace(-1, 1, len(is_first))[:, None]
    states = np.where(is_first[:, None], line, word_states.states[0])
    variance, _ = max_explainable_variance(states, word_states, 5, 0)
    yield expect_above("explainable variance on a line", variance[0], 0.9)
    texts = [" ".join(np.random.default_rng(n).permutation(WORDS[:10])[:7]) for n in range(12)]
    inputs = small_inputs("bert", "encoder.positions={kind: none}", texts=texts)
    same = Contextuality().run(inputs).arrays[SAME_WORD]
    yield expect_equal("of one word in the embeddings", same[0], 1)
    yield expect_below("of one word after the blocks", same[-1], 0.9999)

    trees = random_trees(60)
    states = _words_then_cone([word for tree in trees for word in tree.words])
    similar, drop = "random words are more similar", "a word is less similar to itself"
    for layers, verdict in (([0, 1], "seen"), ([1, 0], "opposite")):
        with planted_states(trees, states[layers]) as inputs:
            result = Contextuality().run(inputs)
        expected = dict.fromkeys((similar, drop), verdict)
        yield from expect_verdicts(f"layers {layers}", Contextuality(), result, expected)
        raw = [f.value for f in result.findings if f.metric == SAME_WORD and f.layer is not None]
        yield expect_above("difference by layer", (raw[0] - raw[1]) * (1 - 2 * layers[0]), 0.4)


def _words_then_cone(words: Sequence[str]) -> NDArray[np.float32]:
    """Return states by word in layer 0, and in layer 1 a cone that knows nothing of words.

    Without the correction for random words, a word is more similar to itself in layer 1.
    """
    generator = np.random.default_rng(0)
    names, ids = np.unique(words, return_inverse=True)
    of_words = generator.normal(0, 1, (len(names), 32))[ids]
    noise = generator.normal(0, 0.6, (2, len(words), 32))
    states = np.stack([of_words, np.full_like(of_words, 6.0)]) + noise
    return states.astype(np.float32)


def expect_word_senses() -> Iterator[ExpectedValue]:
    """Check separate senses, equal states, and a model without positions."""
    senses = np.repeat([0, 1], 6)
    separate = np.zeros((12, 4))
    separate[np.arange(12), senses] = 1
    yield expect_equal("separate senses", same_sense_fraction(separate, senses), 1)
    equal = same_sense_fraction(np.ones((12, 4)) / 2, senses)
    yield expect_equal("equal states", equal, 5 / 11)
    sentences = [text for word in SENSE_SENTENCES.values() for sense in word for text in sense]
    words = tuple(dict.fromkeys(" ".join(sentences).split()))
    model = small_model("bert", "encoder.positions.kind=none", words=words)
    is_correct = WordSenses().run(AnalysisInput(model, [])).arrays["is_correct"]
    yield expect_equal("in the embeddings", is_correct[:, 0], 5 / 11)


def expect_sentence_vectors() -> Iterator[ExpectedValue]:
    """Check scaled, equal and noisy vectors."""
    vectors = np.random.default_rng(0).normal(0, 1, (20, 16))
    yield expect_equal("scaled", nearest_is_match(vectors, 3 * vectors), 1)
    yield expect_equal("equal", nearest_is_match(np.ones((5, 4)), np.ones((5, 4))), 1 / 5)
    yield expect_above("with noise", nearest_is_match(vectors, vectors + 1e-3).mean(), 0.99)


def _gaussian_states(offset: float, num_words: int = 4000, width: int = 64) -> WordStates:
    """Return Gaussian states shifted by ``offset`` in one dimension."""
    generator = np.random.default_rng(0)
    states = generator.normal(0, 1, (1, num_words, width)).astype(np.float32)
    states[..., 0] += offset
    words = tuple(str(n % 50) for n in range(num_words))
    return WordStates(states, np.repeat(np.arange(num_words // 10), 10), words)
