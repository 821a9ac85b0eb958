"""Edge probing asks words, and words with what they depend on."""

import numpy as np

from bertwright.analysis.analysis import Case
from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.planted.trees import random_trees
from bertwright.analysis.probing.edges import edges_of
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
