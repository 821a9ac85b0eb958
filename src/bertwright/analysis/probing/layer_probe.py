"""Training and test words of probes, their features, and scores on the test words."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.requirements import missing_halves, missing_trees
from bertwright.analysis.core.result import BaselineValue
from bertwright.analysis.core.word_states import WordStates, compute_word_states
from bertwright.core.significance import FloatArray, split_halves

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class ProbeWords:
    """Hidden states of words, and masks (W,) of the words for training and for testing."""

    word_states: WordStates
    is_train: BoolArray
    is_test: BoolArray

    @staticmethod
    def from_inputs(inputs: AnalysisInput) -> "ProbeWords":
        """Use the words of half of the texts for training and the others for testing."""
        states = compute_word_states(inputs)
        halves = split_halves(len(inputs.texts), inputs.seed)
        return ProbeWords(states, *(np.isin(states.text_ids, half) for half in halves))

    def only(self, is_included: BoolArray) -> "ProbeWords":
        """Leave out words, both in training and in testing, that are not included."""
        included = (self.is_train & is_included, self.is_test & is_included)
        return replace(self, is_train=included[0], is_test=included[1])

    def features(self, layer: int) -> FloatArray:
        """Return the states of a layer, standardised with the training words."""
        return standardise(self.word_states.states[layer], self.is_train)

    def tag_scores(self, features: FloatArray, tags: NDArray[np.str_], c: float) -> FloatArray:
        """Return 1 for each test word whose tag a linear probe predicts, else 0."""
        from sklearn.linear_model import LogisticRegression

        train_tags = tags[self.is_train]
        predicted = np.repeat(train_tags[:1], self.is_test.sum())
        if len(np.unique(train_tags)) > 1:
            probe: Any = LogisticRegression(C=c, max_iter=200)
            probe.fit(features[self.is_train], train_tags)
            predicted = probe.predict(features[self.is_test])
        return np.asarray(np.asarray(predicted, np.str_) == tags[self.is_test], np.float64)

    def majority_baseline(self, tags: NDArray[np.str_]) -> BaselineValue:
        """Return the test accuracy of the most frequent training tag."""
        return majority_baseline(tags[self.is_train], tags[self.is_test])

    def sums_by_text(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return for each test text the sum of its words' values, and their number."""
        _, text_ids = np.unique(self.word_states.text_ids[self.is_test], return_inverse=True)
        num_words = np.bincount(text_ids).astype(np.float64)
        return np.asarray(np.bincount(text_ids, values), np.float64), num_words


def majority_baseline(train_tags: ArrayLike, test_tags: ArrayLike) -> BaselineValue:
    """Return the fraction of test tags that equal the most frequent training tag."""
    names, counts = np.unique(train_tags, return_counts=True)
    majority = str(names[counts.argmax()])
    return BaselineValue(f"always {majority}", float((np.asarray(test_tags) == majority).mean()))


def standardise(features: NDArray[Any], is_train: BoolArray) -> FloatArray:
    """Return features (N, D) with mean 0 and deviation 1 on the training rows."""
    features = np.asarray(features, np.float64)
    mean, deviation = features[is_train].mean(0), features[is_train].std(0)
    return (features - mean) / np.maximum(deviation, 1e-8)


def ridge_predictions(
    features: NDArray[Any],
    targets: NDArray[Any],
    is_train: BoolArray,
    is_test: BoolArray,
    penalties: Any,
) -> FloatArray:
    """Predict targets (N,) from standardised features (N, D) with the best ridge penalty."""
    from sklearn.linear_model import RidgeCV

    scaled = standardise(features, is_train)
    probe: Any = RidgeCV(penalties).fit(scaled[is_train], targets[is_train])
    return np.asarray(probe.predict(scaled[is_test]), np.float64)


def missing_tags(inputs: AnalysisInput) -> str | None:
    """Return why no part-of-speech probe can be trained on half of the texts, or None."""
    if (reason := missing_trees(inputs) or missing_halves()(inputs)) is not None:
        return reason
    train, _ = split_halves(len(inputs.texts), inputs.seed)
    return missing_tag_variety(replace(inputs, texts=[inputs.texts[n] for n in train]))


def missing_tag_variety(inputs: AnalysisInput) -> str | None:
    """Return why there are no parts of speech to distinguish, or None if there are."""
    if len(np.unique(part_of_speech_tags(inputs))) > 1:
        return None
    return "all training words have the same part of speech: give more sentences"


def part_of_speech_tags(inputs: AnalysisInput) -> NDArray[np.str_]:
    """Return the part-of-speech tags of all words that were not truncated."""
    return np.array([tag for text in inputs.texts for tag in text.tags])
