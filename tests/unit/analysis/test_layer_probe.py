"""Words of probes: halves, standardised features, and features of several layers."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.result import BaselineValue
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.core.word_states import WordStates
from bertwright.analysis.probing.description_length import PORTIONS, online_code_lengths
from bertwright.analysis.probing.feature_layers import FEATURE_SETS
from bertwright.analysis.probing.layer_probe import ProbeWords, majority_baseline, missing_tags
from bertwright.core.significance import split_halves
from experiments.analyses.models import small_model
from experiments.analyses.trees import random_trees

TEXT_IDS = np.array([0, 0, 1, 1, 1, 3, 3, 4])


def probe_words() -> ProbeWords:
    """Return eight words of four texts; texts 1 and 4 are for training."""
    states = np.random.default_rng(0).normal(3, 2, (2, 8, 3)).astype(np.float32)
    is_train = np.isin(TEXT_IDS, (1, 4))
    return ProbeWords(WordStates(states, TEXT_IDS, tuple("abcdefgh")), is_train, ~is_train)


def test_sums_are_over_the_test_words_of_each_text() -> None:
    sums, counts = probe_words().sums_by_text(np.array([1.0, 2, 4, 8]))
    assert (sums.tolist(), counts.tolist()) == ([3, 12], [2, 2])
    words = probe_words().only(np.arange(8) != 1)
    sums, counts = words.sums_by_text(np.array([1.0, 4, 8]))
    assert (sums.tolist(), counts.tolist()) == ([1, 12], [1, 2])
    assert words.is_train.tolist() == probe_words().is_train.tolist()
    assert probe_words().only(np.arange(8) != 3).is_train.sum() == 3


def test_features_are_standardised_with_the_training_words() -> None:
    words = probe_words()
    for layer in (0, 1):
        features, states = words.features(layer), words.word_states.states[layer].astype(float)
        train = states[words.is_train]
        np.testing.assert_allclose(features, (states - train.mean(0)) / train.std(0), rtol=1e-9)


def test_a_probe_of_one_tag_predicts_it_and_others_are_logistic_regressions() -> None:
    words, tags = probe_words(), np.array(list("xyzzzzxz"))
    assert words.tag_scores(words.features(0), tags, 1.0).tolist() == [0, 0, 1, 0]
    assert words.majority_baseline(tags) == BaselineValue("always z", 0.25)
    assert majority_baseline(["x", "y", "y"], ["x", "y", "x", "y", "y"]).value == 0.6
    tags = np.array(list("xyxyyxxy"))
    probe = LogisticRegression(C=0.1, max_iter=200)
    probe.fit(words.features(1)[words.is_train], tags[words.is_train])
    expected = probe.predict(words.features(1)[words.is_test]) == tags[words.is_test]
    assert words.tag_scores(words.features(1), tags, 0.1).tolist() == expected.tolist()


def test_halves_of_the_texts_are_for_training_and_for_testing() -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, random_trees(7)), seed=2)
    words = ProbeWords.from_inputs(inputs)
    train, test = split_halves(7, 2)
    text_ids = words.word_states.text_ids
    assert sorted(set(text_ids[words.is_train])) == train.tolist()
    assert sorted(set(text_ids[words.is_test])) == test.tolist()
    assert missing_tags(inputs) is None
    one_tag = [replace(tree, tags=("X",) * len(tree.words)) for tree in random_trees(7)]
    reason = missing_tags(AnalysisInput(model, encode_texts(model, one_tag)))
    assert "same part of speech" in str(reason)
    two_tags = [replace(tree, tags=("X", *("Y",) * (len(tree.words) - 1))) for tree in one_tag]
    assert missing_tags(AnalysisInput(model, encode_texts(model, two_tags))) is None


@pytest.mark.parametrize(
    ("num_layers", "expected"),
    [(5, [[0], [4], [5], [14], [2, 3, 4, 5], [15]]), (3, [[0], [2], [3], [6], [1, 2, 3], [6]])],
)
def test_combined_layers_are_the_last_ones_without_the_embeddings(
    num_layers: int, expected: list[list[float]]
) -> None:
    states = np.arange(num_layers + 1.0)[:, None, None]
    assert [features(states)[0].tolist() for features in FEATURE_SETS.values()] == expected


def test_online_codes_follow_the_definition() -> None:
    """Voita and Titov 2020, section 2.2, with every label counted once more."""
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(60, 4)), generator.integers(0, 3, 60)
    labels[:2] = 2
    bits = online_code_lengths(features, labels, 0.5)
    ends = [1, 2, 4, 8, 15, 30, 60]
    assert sorted({max(1, round(60 * portion)) for portion in PORTIONS}) == ends
    expected = [np.log2(3)] * ends[0]
    for start, end in pairwise(ends):
        seen = sorted(set(labels[:start].tolist()))
        predicted = np.ones((end - start, 1))
        if len(seen) > 1:
            probe = LogisticRegression(C=0.5, max_iter=200).fit(features[:start], labels[:start])
            predicted = probe.predict_proba(features[start:end])
        for row, label in zip(predicted, labels[start:end].tolist(), strict=True):
            probability = row[seen.index(label)] if label in seen else 0.0
            expected.append(-np.log2((start * probability + 1) / (start + 3)))
    np.testing.assert_allclose(bits, expected, rtol=1e-9)
