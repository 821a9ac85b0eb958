"""Edge probing of words, and of words with their heads."""

import numpy as np

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.result import StoredResult
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.core.word_states import compute_word_states
from bertwright.analysis.probing.edge_probe import EdgeProbe, edge_examples, expected_layer
from experiments.analyses.models import small_model
from experiments.analyses.trees import random_trees


def test_examples_are_words_and_words_with_heads() -> None:
    model, trees = small_model(), random_trees(2)
    inputs = AnalysisInput(model, encode_texts(model, trees))
    edges = edge_examples(inputs, compute_word_states(inputs))
    assert edges["part of speech"].word_indices[:, 0].tolist() == list(range(16))
    pairs = edges["relation"].word_indices.tolist()
    expected = [
        (8 * n + word, 8 * n + head)
        for n, tree in enumerate(trees)
        for word, head in enumerate(tree.heads)
        if head >= 0
    ]
    assert [tuple(pair) for pair in pairs] == expected
    half = edges["relation"].select(np.arange(16) < 8)
    assert len(half.word_indices) == len(half.labels) == 7


def test_a_gain_in_one_layer_is_its_expected_layer() -> None:
    for layer in range(1, 5):
        num_correct = np.where(np.arange(5) < layer, 10.0, 30.0)
        for num_targets in (40.0, 80.0):
            assert expected_layer(np.append(num_correct, num_targets)) == layer
    assert expected_layer(np.full(6, 7.0)) == 0


def test_claims_are_about_the_test_sentences() -> None:
    model, analysis = small_model(), EdgeProbe(epochs=1, num_seeds=2)
    result = analysis.run(AnalysisInput(model, encode_texts(model, random_trees(16))))
    stored = StoredResult({}, [f.as_dict() for f in result.findings], result.arrays)
    for claim in analysis.check_claims(stored):
        assert claim.num_units == 8
        assert claim.interval[0] <= claim.value <= claim.interval[1]
