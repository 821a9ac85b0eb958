"""Description lengths: new labels have a price, and words tell their tags."""

import numpy as np
import pytest

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.probing.description_length import code_lengths
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.treebank import Tree


def test_few_labels_are_told_evenly_and_new_ones_at_a_finite_price() -> None:
    states = np.zeros((2, 3))
    assert code_lengths(states, np.array([0, 1]), 1.0).sum() == pytest.approx(1 + np.log2(3))
    late = np.array([0] * 900 + [1] * 100)
    assert np.isfinite(code_lengths(np.zeros((1000, 3)), late, 1.0)).all()


def test_tags_that_follow_from_words_are_told_shorter_than_drawn_ones() -> None:
    generator, subject = np.random.default_rng(0), small_subject()
    tags = {word: ("NOUN", "VERB", "DET")[n % 3] for n, word in enumerate(WORDS)}
    trees = []
    for _ in range(60):
        words = tuple(generator.choice(WORDS, 8))
        own = tuple(tags[word] for word in words)
        trees.append(Tree(words, (-1,) + (0,) * 7, ("root",) + ("dep",) * 7, own))
    found = Analysis.choose("description-length").run(Case(subject, read_texts(subject, trees)))
    compression = found.arrays["compression"]
    assert compression.shape == (3, 2, 3)
    assert (compression > 1.2).all()
    assert [finding.layer for finding in found.findings[:3]] == [0, 1, 2]
