"""Conformal sets and abstention: finite-sample guarantees, by simulation over exchangeable data."""

import numpy as np
import pytest
from numpy.typing import NDArray

from bertwright.tasks.conformal.scores import aps_scores, coverage_quantiles, lac_scores
from bertwright.tasks.conformal.selective_risk import FAILURE_PROBABILITY, selection_thresholds

GENERATOR = np.random.default_rng(0)


def coverage_quantile(
    scores: NDArray[np.float64], groups: NDArray[np.int64], coverage: float
) -> float:
    return float(coverage_quantiles(scores, groups, np.array([coverage]))[0])


def selection_threshold(
    confidences: NDArray[np.float64], is_correct: NDArray[np.bool_], risk: float
) -> float | None:
    return selection_thresholds(confidences, is_correct, [risk])[0]


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits)
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("num_examples", "coverage"), [(19, 0.9), (30, 0.8), (99, 0.95)])
def test_coverage_is_at_least_as_promised_and_at_most_one_step_more(
    num_examples: int, coverage: float
) -> None:
    trials = 3000
    scores = np.random.default_rng(1).normal(size=(trials, num_examples + 1))
    groups = np.arange(num_examples)
    thresholds = [coverage_quantile(line[1:], groups, coverage) for line in scores]
    covered = (scores[:, 0] <= thresholds).mean()
    noise = 4 * np.sqrt(coverage * (1 - coverage) / trials)
    assert coverage - noise <= covered <= coverage + 1 / (num_examples + 1) + noise


def test_the_quantile_is_the_score_of_rank_ceil_of_the_coverage_times_one_more() -> None:
    scores = GENERATOR.permutation(np.arange(1.0, 100.0))
    for coverage in (0.01, 0.5, 0.9, 0.905, 0.99):
        rank = np.ceil(100 * coverage - 1e-9)
        assert coverage_quantile(scores, np.arange(99), coverage) == rank
    assert coverage_quantile(scores, np.arange(99), 0.991) == np.inf


def test_words_of_a_sentence_share_the_weight_of_one_example() -> None:
    """A random word of a new sentence is covered, although the words of a sentence are alike."""
    generator, coverage, num_sentences, trials = np.random.default_rng(2), 0.8, 40, 800
    covered: list[float] = []
    for _ in range(trials):
        sizes = generator.choice([1, 20], num_sentences + 1)
        # Longer sentences are harder, so that counting words would not give this coverage.
        shared = generator.normal(size=num_sentences + 1) + (sizes > 1)
        scores = [s + 0.1 * generator.normal(size=n) for s, n in zip(shared, sizes, strict=True)]
        groups = np.repeat(np.arange(num_sentences), sizes[1:])
        threshold = coverage_quantile(np.concatenate(scores[1:]), groups, coverage)
        covered.append(float((scores[0] <= threshold).mean()))
    deviation = np.std(covered) / np.sqrt(trials)
    assert coverage - 4 * deviation <= np.mean(covered)
    assert np.mean(covered) <= coverage + 2 / (num_sentences + 1) + 4 * deviation


@pytest.mark.parametrize("method", [lac_scores, aps_scores])
def test_sets_grow_with_the_coverage_and_with_the_probability(method: type) -> None:
    probabilities = softmax(2 * GENERATOR.normal(size=(500, 5)))
    scores = method(probabilities, GENERATOR.uniform(size=500))
    order = np.argsort(-probabilities, axis=1)
    assert (np.diff(np.take_along_axis(scores, order, 1), axis=1) >= 0).all()
    calibration = scores[np.arange(500), GENERATOR.integers(0, 5, 500)]
    thresholds = [coverage_quantile(calibration, np.arange(500), c / 20) for c in range(1, 20)]
    assert np.diff(thresholds).min() >= 0


def test_adaptive_sets_are_never_empty_and_exact_above_the_accuracy() -> None:
    generator, trials, size = np.random.default_rng(3), 200, 150
    covered: list[float] = []
    for _ in range(trials):
        probabilities = softmax(generator.normal(size=(size, 4)))
        labels = (probabilities.cumsum(1) < generator.uniform(size=(size, 1))).sum(1)
        scores = aps_scores(probabilities, generator.uniform(size=size))
        assert (scores.min(1) == 0).all()
        correct = scores[np.arange(size), labels]
        threshold = coverage_quantile(correct[: size // 2], np.arange(size // 2), 0.9)
        covered.append(float((correct[size // 2 :] <= threshold).mean()))
    deviation = np.std(covered) / np.sqrt(trials)
    upper = 0.9 + 1 / (size // 2 + 1)
    assert 0.9 - 4 * deviation <= np.mean(covered) <= upper + 4 * deviation


def test_the_risk_of_predictions_that_are_kept_is_guaranteed() -> None:
    generator, trials, risk = np.random.default_rng(4), 200, 0.15
    violations, kept = 0, 0
    for _ in range(trials):
        confidences = generator.uniform(0.5, 1.0, 1500)
        is_correct = generator.uniform(size=1500) < confidences
        threshold = selection_threshold(confidences, is_correct, risk)
        if threshold is not None:
            kept += 1
            violations += (1 - threshold) / 2 > risk  # the risk of confidences from the threshold
    assert kept > trials / 4
    allowed = FAILURE_PROBABILITY + 3 * np.sqrt(FAILURE_PROBABILITY / trials)
    assert violations / trials <= allowed


def test_no_confidence_keeps_an_impossible_risk() -> None:
    confidences = GENERATOR.uniform(size=200)
    assert selection_threshold(confidences, np.zeros(200, bool), 0.05) is None
    assert selection_threshold(confidences, np.ones(200, bool), 0.05) is not None
    assert selection_threshold(confidences[:0], np.ones(0, bool), 0.05) is None
