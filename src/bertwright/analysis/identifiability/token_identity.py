"""Whether hidden states identify their token (Brunner et al. 2020, section 4)."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.requirements import missing_halves
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, WordStates
from bertwright.analysis.geometry.contextuality import unit_vectors
from bertwright.analysis.probing.layer_probe import ProbeWords
from bertwright.core.significance import FloatArray, bootstrap_ratio

LINEAR_MAP, UNCHANGED = "linear map", "unchanged state"

FIRST_MINUS_LAST = "linear map, first layer minus last"
LAST_LAYER_MINUS_POSITIONS = "linear map, last layer minus positions alone"

COSINE_TOLERANCE = 1e-6
"""Tolerance for rounding errors of cosines, for a word that occurs twice in a text."""


class TokenIdentity(Analysis):
    """How many words a linear map of hidden states identifies among the words of a text.

    A word is identified if its mapped state is closest, by cosine, to its own embedding or an equal
    one. The map is a ridge regression with ``ridge_penalty``, trained on half of the texts and
    tested on the other half. Also reported are the hidden state without a map, and as a baseline
    the mean embedding at the position.
    """

    kind: Literal["token-identity"] = "token-identity"
    ridge_penalty: float = Field(default=1.0, ge=0)
    survey_id = "B11"
    title = "Can a token still be identified from its hidden state?"
    source = "Brunner et al. 2020"
    taps = WORD_STATE_TAPS
    requires = (missing_halves(),)
    claims = (
        Claim(
            "the last layer still identifies words, beyond what their positions tell",
            "about four fifths in BERT-base",
            LAST_LAYER_MINUS_POSITIONS,
        ),
        Claim(
            "it identifies fewer words than the embeddings do", "falls with depth", FIRST_MINUS_LAST
        ),
    )
    plots = (
        LayerCurves(
            "fraction of words identified",
            lambda r: dict(
                zip((LINEAR_MAP, UNCHANGED), r.arrays["fraction_identified"].T, strict=True)
            ),
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        words = ProbeWords.from_inputs(inputs)
        word_states, is_train, is_test = words.word_states, words.is_train, words.is_test
        target = np.asarray(word_states.states[0], np.float64)
        findings = Findings(inputs.seed, includes_embeddings=True)
        fractions = np.zeros((word_states.num_layers, 2))
        chance, num_words = _chance_level(target, word_states, is_test)
        sums: list[tuple[FloatArray, FloatArray]] = []
        for layer in range(word_states.num_layers):
            states = np.asarray(word_states.states[layer], np.float64)
            weights = _ridge_map(states[is_train], target[is_train], self.ridge_penalty)
            predictions = ((LINEAR_MAP, states @ weights), (UNCHANGED, states))
            for n, (name, predicted) in enumerate(predictions):
                num_correct = num_identified(predicted, target, word_states, is_test)
                interval = bootstrap_ratio(num_correct, num_words, seed=inputs.seed)
                baseline = BaselineValue("by chance", chance)
                findings.add_interval(name, interval, layer, baseline=baseline)
                fractions[layer, n] = interval.value
                if name == LINEAR_MAP:
                    sums.append((num_correct, num_words))
        findings.add_difference(FIRST_MINUS_LAST, sums[0], sums[-1])
        by_position = _mean_by_position(target, word_states, is_train)
        num_by_position = num_identified(by_position, target, word_states, is_test)
        baseline = BaselineValue(
            "by positions alone", float(num_by_position.sum() / num_words.sum())
        )
        findings.add_difference(
            LAST_LAYER_MINUS_POSITIONS, sums[-1], (num_by_position, num_words), baseline=baseline
        )
        return AnalysisResult(findings, {"fraction_identified": fractions})


def num_identified(
    predicted: FloatArray,
    target: FloatArray,
    word_states: WordStates,
    is_test: NDArray[np.bool_],
) -> FloatArray:
    """Return for each test text how many words are closest to their own embedding."""
    texts = np.unique(word_states.text_ids[is_test])
    num_correct = np.zeros(len(texts))
    for number, text in enumerate(texts):
        words = word_states.text_ids == text
        cosines = unit_vectors(predicted[words]) @ unit_vectors(target[words]).T
        num_correct[number] = (cosines.diagonal() >= cosines.max(1) - COSINE_TOLERANCE).sum()
    return num_correct


def _chance_level(
    target: FloatArray, word_states: WordStates, is_test: NDArray[np.bool_]
) -> tuple[float, FloatArray]:
    """Return the fraction identified by chance, and the number of words per test text."""
    texts, num_words = np.unique(word_states.text_ids[is_test], return_counts=True)
    expected = 0.0
    for text, number in zip(texts, num_words, strict=True):
        embeddings = unit_vectors(target[word_states.text_ids == text])
        expected += (embeddings @ embeddings.T >= 1 - COSINE_TOLERANCE).sum() / number
    return float(expected / num_words.sum()), num_words.astype(np.float64)


def _mean_by_position(
    target: FloatArray, word_states: WordStates, is_train: NDArray[np.bool_]
) -> FloatArray:
    """Return the mean training embedding at the position of each word, (W, E).

    Positions that do not occur in the training texts get the mean of all embeddings.
    """
    positions = word_states.positions
    means = np.broadcast_to(target[is_train].mean(0), target.shape).copy()
    for position in np.unique(positions[is_train]):
        means[positions == position] = target[is_train & (positions == position)].mean(0)
    return means


def _ridge_map(states: FloatArray, target: FloatArray, ridge_penalty: float) -> FloatArray:
    """Return the ridge map (D, E) from states (W, D) to targets (W, E)."""
    square = states.T @ states + ridge_penalty * np.eye(states.shape[1])
    return np.asarray(np.linalg.solve(square, states.T @ target), np.float64)
