"""Trees in states: what is planted is found, whatever turns it; a chain is no tree."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import SENTENCES, WORDS, small_subject
from bertwright.analysis.probing.structural import (
    StructuralProbe,
    distances,
    fitted,
    rank_correlation,
    sentence_of,
)
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree


def trees(number: int = 40, size: int = 8) -> list[Tree]:
    generator = np.random.default_rng(0)
    found = []
    for _ in range(number):
        # Each word hangs on one before it, in an order of its own.
        order = generator.permutation(size)
        heads = [-1] * size
        for place in range(1, size):
            heads[order[place]] = int(order[generator.integers(place)])
        words = tuple(generator.choice(WORDS[:20], size))
        found.append(Tree(words, tuple(heads), ("dep",) * size, ("X",) * size))
    return found


def vectors(tree: Tree) -> torch.Tensor:
    """Every edge has a direction of its own; a word is the sum of those on its way to the root."""
    own = np.zeros((len(tree.words), len(tree.words)))
    for word in range(len(tree.words)):
        at = word
        while tree.heads[at] >= 0:
            own[word, at] = 1
            at = tree.heads[at]
    return torch.from_numpy(own).float()


def test_planted_trees_are_their_distances() -> None:
    for tree in trees(5):
        sentence, planted = sentence_of(tree), vectors(tree)
        said = distances(planted).numpy()
        np.testing.assert_allclose(said, sentence.distances, atol=1e-6)
        assert sentence.edges_found(said) == len(sentence.edges) == len(tree.words) - 1
        assert rank_correlation([sentence], [said]) == pytest.approx(1)
        turned = torch.linalg.qr(torch.randn(8, 8)).Q
        torch.testing.assert_close(distances(planted @ turned), distances(planted))


def test_a_probe_finds_trees_among_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    own, learned = trees(300), 240
    noise = torch.randn(len(own), 8, 8, generator=generator)
    turned = torch.linalg.qr(torch.randn(16, 16, generator=generator)).Q
    states = [
        torch.cat((vectors(tree), each), 1) @ turned for tree, each in zip(own, noise, strict=True)
    ]
    sentences = [sentence_of(tree) for tree in own]
    wanted = [sentence.distances for sentence in sentences]
    choice = StructuralProbe(rank=16, rate=1e-2, epochs=60)
    probe, error = fitted(states[:learned], wanted[:learned], choice, 0)
    right = sum(
        s.edges_found(distances(x @ probe).numpy())
        for s, x in zip(sentences[learned:], states[learned:], strict=True)
    )
    assert right / sum(len(s.edges) for s in sentences[learned:]) > 0.9
    chain = sum(s.edges_found(s.along) for s in sentences[learned:])
    assert chain / sum(len(s.edges) for s in sentences[learned:]) < 0.6
    _, of_noise = fitted(list(noise[:learned]), wanted[:learned], choice, 0)
    assert error < of_noise / 2


def test_a_report_of_a_small_model(tmp_path: Path) -> None:
    subject = small_subject()
    case = Case(subject, read_texts(subject, trees(20)), cache=tmp_path)
    found = Analysis.choose({"kind": "structural-probe", "rank": 8, "epochs": 2}).run(case)
    assert found.arrays["scores"].shape == (3, 2)
    assert [f.layer for f in found.findings if f.metric == "UUAS"] == [0, 1, 2]


def test_every_word_is_itself_before_the_blocks_and_the_map_is_learned(tmp_path: Path) -> None:
    subject = small_subject()
    drawn = [np.random.default_rng(n).permutation(WORDS)[:8] for n in range(60)]
    texts = [Example(" ".join(words)) for words in drawn]
    found = Analysis.choose("token-identity").run(Case(subject, read_texts(subject, texts)))
    rates = found.arrays["rates"]
    assert rates[0] == pytest.approx(1)
    assert (rates[:, 0] > 0.8).all()
    few = Analysis.choose("token-identity").run(
        Case(subject, read_texts(subject, [Example(text) for text in SENTENCES]))
    )
    assert few.arrays["rates"].shape == (3, 2)
