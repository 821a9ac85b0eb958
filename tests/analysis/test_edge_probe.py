"""Edge probing asks words, and words with what they depend on."""

import numpy as np

from bertwright.analysis.analysis import Case
from bertwright.analysis.findings import Stored
from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.planted.trees import random_trees
from bertwright.analysis.probing.edges import EdgeProbe, edges_of, expected_layer
from bertwright.analysis.texts import read_texts
from bertwright.analysis.word_states import word_states


def test_edges_are_words_and_the_words_that_they_depend_on() -> None:
    subject, own = small_subject(), random_trees(2)
    case = Case(subject, read_texts(subject, own))
    edges = edges_of(case, word_states(case))
    assert edges["part of speech"].words[:, 0].tolist() == list(range(16))
    pairs = edges["relation"].words.tolist()
    hangs = [
        (8 * n + word, 8 * n + head)
        for n, tree in enumerate(own)
        for word, head in enumerate(tree.heads)
        if head >= 0
    ]
    assert [tuple(pair) for pair in pairs] == hangs
    half = edges["relation"].of(np.arange(16) < 8)
    assert len(half.words) == len(half.target) == 7


def test_what_becomes_known_in_one_layer_is_expected_there() -> None:
    for layer in range(1, 5):
        known = np.where(np.arange(5) < layer, 10.0, 30.0)
        for asked in (40.0, 80.0):
            assert expected_layer(np.append(known, asked)) == layer
    assert expected_layer(np.full(6, 7.0)) == 0


def test_verdicts_are_of_the_sentences_that_judge() -> None:
    subject, analysis = small_subject(), EdgeProbe(epochs=1, seeds=2)
    found = analysis.run(Case(subject, read_texts(subject, random_trees(16))))
    stored = Stored({}, [own.as_dict() for own in found.findings], found.arrays)
    for own in analysis.conclusions(stored):
        assert own.num_units == 8
        assert own.interval[0] <= own.value <= own.interval[1]
