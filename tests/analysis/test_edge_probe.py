"""Edge probing: what is planted in a layer becomes known there, and is read there."""

import numpy as np
import pytest

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.probing.edges import edges_of
from bertwright.analysis.texts import read_texts
from bertwright.analysis.word_states import WordStates
from bertwright.tasks.formats.treebank import Tree

TAGS, RELATIONS = ("NOUN", "VERB", "DET"), ("nsubj", "obj", "amod")


def trees(number: int = 80, size: int = 8) -> list[Tree]:
    generator = np.random.default_rng(0)
    found = []
    for _ in range(number):
        heads = [-1, *(int(generator.integers(word)) for word in range(1, size))]
        relations = ("root", *generator.choice(RELATIONS, size - 1))
        tags = tuple(generator.choice(TAGS, size))
        found.append(Tree(tuple(generator.choice(WORDS, size)), tuple(heads), relations, tags))
    return found


def planted(own: list[Tree], tags_in: int, relations_in: int) -> WordStates:
    generator = np.random.default_rng(1)
    words = [(tree, n) for tree in own for n in range(len(tree.words))]
    states = generator.normal(0, 0.3, (4, len(words), 8)).astype(np.float32)
    for place, (tree, n) in enumerate(words):
        states[tags_in, place, TAGS.index(tree.tags[n])] += 1
        if n:
            states[relations_in, place, 3 + RELATIONS.index(tree.relations[n])] += 1
    text = np.repeat(np.arange(len(own)), [len(tree.words) for tree in own])
    return WordStates(states, text, tuple(tree.words[n] for tree, n in words))


def test_what_is_planted_in_a_layer_is_known_and_read_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, own = small_subject(), trees()
    case = Case(subject, read_texts(subject, own))
    states = planted(own, tags_in=1, relations_in=3)
    monkeypatch.setattr("bertwright.analysis.probing.edges.word_states", lambda _: states)
    choice = {"kind": "edge-probe", "width": 16, "seeds": 2, "epochs": 20, "rate": 1e-2}
    found = Analysis.choose(choice).run(case)
    told = {finding.metric: finding.value for finding in found.findings if finding.layer is None}
    for name, layer in (("part of speech", 1), ("relation", 3)):
        assert found.arrays[f"{name} scores"].mean(0)[layer:].min() > 0.75
        assert found.arrays[f"{name} scores"].mean(0)[:layer].max() < 0.55
        assert found.arrays[f"{name} weights"].mean(0).argmax() == layer
        assert told[f"{name}: expected layer"] == pytest.approx(layer, abs=0.35)
    assert told["expected layer, relation less part of speech"] == pytest.approx(2, abs=0.6)


def test_edges_are_words_and_the_words_that_they_depend_on() -> None:
    subject, own = small_subject(), trees(2)
    case = Case(subject, read_texts(subject, own))
    edges = edges_of(case, planted(own, 0, 1))
    assert edges["part of speech"].words[:, 0].tolist() == list(range(16))
    pairs = edges["relation"].words.tolist()
    assert len(pairs) == 14
    assert [pair[1] for pair in pairs[7:]] == [8 + head for head in own[1].heads[1:]]
    half = edges["relation"].of(np.arange(16) < 8)
    assert len(half.words) == len(half.target) == 7
