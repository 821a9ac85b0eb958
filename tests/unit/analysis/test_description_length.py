"""Description lengths: unseen labels have a finite price, and words determine tags."""

import numpy as np
import pytest

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.probing.description_length import (
    CONTROL_MINUS_TAGS,
    online_code_lengths,
)
from bertwright.tasks.formats.dependency_trees import DependencyTree
from experiments.analyses.models import WORDS, small_model


def test_first_labels_have_a_uniform_code_and_new_ones_a_finite_price() -> None:
    states = np.zeros((2, 3))
    assert online_code_lengths(states, np.array([0, 1]), 1.0).sum() == pytest.approx(1 + np.log2(3))
    late = np.array([0] * 900 + [1] * 100)
    assert np.isfinite(online_code_lengths(np.zeros((1000, 3)), late, 1.0)).all()


def test_tags_of_words_are_compressed() -> None:
    generator, model = np.random.default_rng(0), small_model()
    tags = {word: ("NOUN", "VERB", "DET")[n % 3] for n, word in enumerate(WORDS)}
    trees = []
    for _ in range(60):
        words = tuple(generator.choice(WORDS, 8))
        of_words = tuple(tags[word] for word in words)
        trees.append(DependencyTree(words, (-1,) + (0,) * 7, ("root",) + ("dep",) * 7, of_words))
    result = Analysis.parse("description-length").run(
        AnalysisInput(model, encode_texts(model, trees))
    )
    compression = result.arrays["compression"]
    assert compression.shape == (3, 2, 3)
    assert (compression > 1.2).all()
    assert [finding.layer for finding in result.findings[:3]] == [0, 1, 2]


def test_random_tags_cost_more_than_tags_of_words() -> None:
    """Control tags are determined by words."""
    generator, model = np.random.default_rng(0), small_model()
    heads, relations = (-1,) + (0,) * 7, ("root",) + ("dep",) * 7
    trees = [
        DependencyTree(
            tuple(generator.choice(WORDS, 8)),
            heads,
            relations,
            tuple(generator.choice(["A", "B"], 8)),
        )
        for _ in range(40)
    ]
    inputs = AnalysisInput(model, encode_texts(model, trees))
    findings = Analysis.parse("description-length").run(inputs).findings
    (difference,) = [f for f in findings if f.metric == CONTROL_MINUS_TAGS]
    assert difference.value < -0.2
    assert difference.interval is not None
    assert difference.interval[1] < 0
