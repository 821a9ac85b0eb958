"""Cosine similarity of hidden states (Ethayarajh 2019).

Between random words, between contexts of one word, and between a word and its sentence.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, WordStates, compute_word_states
from bertwright.core.significance import (
    ConfidenceInterval,
    FloatArray,
    bootstrap_mean_difference,
    bootstrap_ratio,
)

RANDOM_PARTNERS = 5
"""Number of random words from other texts that each word is compared with."""

MAX_OCCURRENCES = 200
"""Maximum number of occurrences of one word for its explainable variance."""

NUM_REMOVED_DIMENSIONS = 3
"""Number of dimensions to remove; a few can make all states similar, as in GPT-2."""

RANDOM_WORDS, SAME_WORD, WORD_AND_SENTENCE = "random words", "same word", "word and sentence"
WITHOUT_LARGEST_DIMENSIONS = f"random words without {NUM_REMOVED_DIMENSIONS} dimensions"
EXPLAINABLE_VARIANCE = "explainable variance of one word"

Sums = tuple[FloatArray, FloatArray]
"""Sums of values, and the number of values, for each sampled unit."""

ANISOTROPY_INCREASE = f"{RANDOM_WORDS}, last layer minus first"
SELF_SIMILARITY_DROP = "same word minus random words, last layer minus first"


class Contextuality(Analysis):
    """Mean cosines of hidden states by layer.

    Cosines are taken between random words of different texts (anisotropy), between occurrences of a
    word in different texts (self-similarity), and between words and the mean of their text; the
    latter two minus the anisotropy. Anisotropy is also measured without the three largest
    dimensions. Maximum explainable variance is the fraction of the variance of a word's occurrences
    along one direction, minus the same for as many random words. Words in fewer than
    ``min_contexts`` texts are skipped. All words count alike; the published code draws one word of
    each text.
    """

    kind: Literal["contextuality"] = "contextuality"
    min_contexts: int = Field(default=5, ge=2)
    survey_id = "B35"
    title = "How similar are hidden states of random words, and of one word in many contexts?"
    source = "Ethayarajh 2019"
    taps = WORD_STATE_TAPS
    claims = (
        Claim(
            "random words are more similar in the last layer than in the embeddings",
            "cosines of 0.11 before and 0.48 after the blocks of BERT-base",
            ANISOTROPY_INCREASE,
        ),
        Claim(
            "a word is less similar to itself in other contexts after the blocks than before",
            "falls from layer to layer in BERT-base",
            SELF_SIMILARITY_DROP,
            0.0,
            "before the blocks",
            "below",
            is_optional=True,
        ),
    )
    plots = (
        LayerCurves(
            "cosine",
            lambda r: {n: r.arrays[n] for n in (RANDOM_WORDS, SAME_WORD, WORD_AND_SENTENCE)},
        ),
        LayerCurves(
            "fraction of variance along one direction, minus random words",
            lambda r: {EXPLAINABLE_VARIANCE: r.arrays[EXPLAINABLE_VARIANCE]},
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        word_states = compute_word_states(inputs)
        findings = Findings(inputs.seed, includes_embeddings=True)
        by_metric: dict[str, list[Sums]] = {}
        for layer in range(word_states.num_layers):
            similarities = self._layer_similarities(
                np.asarray(word_states.states[layer]), word_states, inputs.seed
            )
            anisotropy = bootstrap_ratio(*similarities[RANDOM_WORDS], seed=inputs.seed).value
            for name, sums in similarities.items():
                by_metric.setdefault(name, []).append(sums)
                if sums[1].sum() == 0:
                    continue
                interval = bootstrap_ratio(*sums, seed=inputs.seed)
                if name in (SAME_WORD, WORD_AND_SENTENCE):
                    interval = _shift_interval(interval, anisotropy)
                findings.add_interval(name, interval, layer)
        last, first = by_metric[RANDOM_WORDS][-1], by_metric[RANDOM_WORDS][0]
        findings.add_difference(ANISOTROPY_INCREASE, last, first)
        words, texts = (
            (by_layer[-1][0] - by_layer[0][0]) / np.maximum(by_layer[0][1], 1.0)
            for by_layer in (by_metric[SAME_WORD], by_metric[RANDOM_WORDS])
        )
        if len(words):
            findings.add_interval(
                SELF_SIMILARITY_DROP, bootstrap_mean_difference(words, texts, seed=inputs.seed)
            )
        arrays = {
            name: np.array([p.sum() / w.sum() if w.sum() else np.nan for p, w in by_layer])
            for name, by_layer in by_metric.items()
        }
        return AnalysisResult(findings, arrays)

    def _layer_similarities(
        self, states: NDArray[np.float32], word_states: WordStates, seed: int
    ) -> dict[str, Sums]:
        units = unit_vectors(states)
        return {
            RANDOM_WORDS: random_word_similarity(units, word_states, seed),
            SAME_WORD: self_similarity(units, word_states, self.min_contexts),
            WORD_AND_SENTENCE: intra_sentence_similarity(states, word_states),
            WITHOUT_LARGEST_DIMENSIONS: random_word_similarity(
                unit_vectors(zero_largest_dimensions(states)), word_states, seed
            ),
            EXPLAINABLE_VARIANCE: max_explainable_variance(
                states, word_states, self.min_contexts, seed
            ),
        }


def unit_vectors(vectors: NDArray[np.floating[Any]]) -> FloatArray:
    """Scale vectors (W, D) to length 1."""
    values = np.asarray(vectors, np.float64)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def random_word_similarity(states: FloatArray, word_states: WordStates, seed: int) -> Sums:
    """Return the cosines between the words of each text and random words of other texts."""
    generator = np.random.default_rng(seed)
    number = int(word_states.text_ids.max()) + 1
    sums, counts = np.zeros(number), np.zeros(number)
    for _ in range(RANDOM_PARTNERS):
        partner = generator.integers(0, len(states), len(states))
        other = word_states.text_ids[partner] != word_states.text_ids
        cosines = (states * states[partner]).sum(1)
        np.add.at(sums, word_states.text_ids[other], cosines[other])
        np.add.at(counts, word_states.text_ids[other], 1.0)
    return sums, counts


def self_similarity(states: FloatArray, word_states: WordStates, min_contexts: int) -> Sums:
    """Return the mean cosine between occurrences of each word in different texts.

    A word can occur many times, so all pairs are summed at once: the sum of u_i . u_j over pairs of
    different texts is half of |sum of all u|^2 minus the same for each text.
    """
    means: list[float] = []
    for occurrences in _word_occurrences(word_states, min_contexts):
        text_ids = word_states.text_ids[occurrences]
        starts = np.flatnonzero(np.diff(text_ids, prepend=-1))
        by_text = np.add.reduceat(states[occurrences], starts)
        sizes = np.diff(starts, append=len(occurrences))
        cosines = np.square(by_text.sum(0)).sum() - np.square(by_text).sum()
        means.append(float(cosines / (sizes.sum() ** 2 - np.square(sizes).sum())))
    return np.array(means), np.ones(len(means))


def max_explainable_variance(
    states: NDArray[np.floating[Any]], word_states: WordStates, min_contexts: int, seed: int
) -> Sums:
    """Return the explainable variance of each word, minus the same for as many random words.

    The correction is needed because a few states always lie along few directions.
    """
    generator = np.random.default_rng(seed)
    fractions: list[float] = []
    for occurrences in _word_occurrences(word_states, min_contexts):
        if len(occurrences) > MAX_OCCURRENCES:
            occurrences = generator.choice(occurrences, MAX_OCCURRENCES, replace=False)
        others = generator.choice(len(states), len(occurrences), replace=False)
        fractions.append(
            _first_component_fraction(states[occurrences])
            - _first_component_fraction(states[others])
        )
    return np.array(fractions), np.ones(len(fractions))


def _first_component_fraction(states: NDArray[np.floating[Any]]) -> float:
    centred = np.asarray(states, np.float64) - states.mean(0, dtype=np.float64)
    variance = (centred**2).sum()
    # Identical states lie along a single direction.
    return float(np.linalg.norm(centred, 2) ** 2 / variance) if variance > 1e-12 else 1.0


def zero_largest_dimensions(states: NDArray[np.floating[Any]]) -> FloatArray:
    """Set the dimensions of states (W, D) with the largest mean square to 0."""
    values = np.asarray(states, np.float64).copy()
    values[:, np.argsort(-(values**2).mean(0))[:NUM_REMOVED_DIMENSIONS]] = 0.0
    return values


def _word_occurrences(word_states: WordStates, min_contexts: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of the occurrences of each word that occurs in enough texts."""
    indices: dict[str, list[int]] = {}
    for index, word in enumerate(word_states.words):
        indices.setdefault(word.lower(), []).append(index)
    for of_word in indices.values():
        occurrences = np.array(of_word)
        if len(set(word_states.text_ids[occurrences])) >= min_contexts:
            yield occurrences


def intra_sentence_similarity(states: NDArray[np.float32], word_states: WordStates) -> Sums:
    """Return the cosines between the words of each text and their mean."""
    number = int(word_states.text_ids.max()) + 1
    sums, counts = np.zeros(number), np.zeros(number)
    for text in range(number):
        words = states[word_states.text_ids == text].astype(np.float64)
        sums[text] = (unit_vectors(words) @ unit_vectors(words.mean(0, keepdims=True)).T).sum()
        counts[text] = len(words)
    return sums, counts


def _shift_interval(interval: ConfidenceInterval, offset: float) -> ConfidenceInterval:
    return ConfidenceInterval(
        interval.value - offset, interval.low - offset, interval.high - offset, interval.num_units
    )
