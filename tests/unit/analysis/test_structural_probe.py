"""Structural probe: planted trees, under any rotation."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.probing import structural_probe
from bertwright.analysis.probing.structural_probe import (
    BEST_MINUS_CHAIN,
    BEST_MINUS_EMBEDDINGS,
    StructuralProbe,
    distance_spearman,
    fit_distance_probe,
    missing_tree_edges,
    squared_distances,
    tree_sentence,
)
from bertwright.core.significance import split_halves
from experiments.analyses.expectations.probing import noise_states, planted_states
from experiments.analyses.models import small_model
from experiments.analyses.trees import path_vectors, random_trees


def test_planted_trees_have_their_distances() -> None:
    for tree in random_trees(5):
        sentence, planted = tree_sentence(tree), torch.from_numpy(path_vectors(tree))
        distances = squared_distances(planted).numpy()
        np.testing.assert_allclose(distances, sentence.distances, atol=1e-6)
        assert sentence.num_correct_edges(distances) == len(sentence.edges) == len(tree.words) - 1
        assert sentence.first_word == 0
        assert distance_spearman([sentence], [distances]) == pytest.approx(1)
        rotation = torch.linalg.qr(torch.randn(8, 8)).Q
        torch.testing.assert_close(
            squared_distances(planted @ rotation), squared_distances(planted)
        )


def test_correlations_are_means_over_lengths_from_5_to_50() -> None:
    """Hewitt and Manning 2019, section 4.2."""

    def chain(size: int) -> SimpleNamespace:
        columns = np.arange(size)
        return SimpleNamespace(distances=np.abs(columns - columns[:, None]).astype(float))

    def spearman(*lengths_and_signs: tuple[int, int]) -> float:
        sentences = [chain(size) for size, _ in lengths_and_signs]
        signs = [sign for _, sign in lengths_and_signs]
        predicted = [s * c.distances for s, c in zip(signs, sentences, strict=True)]
        return distance_spearman(sentences, predicted)

    # Two lengths count equally, whatever the number of sentences.
    assert spearman((8, 1), (8, 1), (8, 1), (9, -1)) == pytest.approx(0)
    assert spearman((5, 1), (50, 1), (4, -1), (51, -1)) == pytest.approx(1)
    assert np.isnan(spearman((4, 1), (51, 1)))


def test_a_sentence_of_punctuation_has_no_edges() -> None:
    for tree in random_trees(3):
        sentence = tree_sentence(replace(tree, tags=("PUNCT",) * len(tree.words)))
        assert sentence.num_correct_edges(sentence.chain_distances) == len(sentence.edges) == 0


def test_results_of_a_small_model(tmp_path: Path) -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, random_trees(20)), cache_folder=tmp_path)
    result = Analysis.parse({"kind": "structural-probe", "rank": 8, "epochs": 2}).run(inputs)
    assert result.arrays["scores"].shape == (3, 2)
    assert [f.layer for f in result.findings if f.metric == "UUAS"] == [0, 1, 2]


def test_the_best_layer_is_compared_with_the_chain_and_the_embeddings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trees = random_trees(24)
    states = noise_states(3, 8 * len(trees), 8)
    states[2] = np.concatenate([path_vectors(tree) for tree in trees])
    monkeypatch.setattr(structural_probe, "fit_layer_probes", lambda *_: ([torch.eye(8)] * 3, 2))
    with planted_states(trees, states) as inputs:
        result = StructuralProbe().run(replace(inputs, seed=1))
    _, test = split_halves(24, 1)
    edges = [(word, head) for n in test for word, head in enumerate(trees[n].heads) if head >= 0]
    chain = np.mean([abs(word - head) == 1 for word, head in edges])
    values = {(f.metric, f.layer): f.value for f in result.findings}
    assert values["UUAS of the linear chain", None] == pytest.approx(chain)
    assert values["UUAS", 2] == 1
    assert values["Spearman of distances", 2] == pytest.approx(1)
    assert values[BEST_MINUS_CHAIN, None] == pytest.approx(1 - chain)
    assert values[BEST_MINUS_EMBEDDINGS, None] == pytest.approx(1 - values["UUAS", 0])
    assert result.arrays["scores"][:, 0].tolist() == [values["UUAS", n] for n in range(3)]
    assert result.arrays["chain"] == pytest.approx(chain)
    baselines = [f.baseline.value for f in result.findings if f.baseline is not None]
    assert baselines == pytest.approx([chain] * 3)


def test_the_error_of_a_probe_is_that_of_held_out_sentences() -> None:
    """The absolute error over all pairs, divided by the squared length (section 2.3)."""
    trees = [tree_sentence(tree) for tree in random_trees(12)]
    vectors = [torch.from_numpy(path_vectors(tree)) for tree in random_trees(12)]
    distances = [tree.distances for tree in trees]
    errors = {}
    for epochs in (1, 40):
        config = StructuralProbe(rank=8, learning_rate=0.05, epochs=epochs)
        probe, errors[epochs] = fit_distance_probe(vectors, distances, config, 0)
        assert probe.shape == (8, 8)
        by_sentence = [
            np.abs(squared_distances(v @ probe).numpy() - d).mean()
            for v, d in zip(vectors, distances, strict=True)
        ]
        # A tenth of twelve sentences is one.
        assert min(abs(error - errors[epochs]) for error in by_sentence) < 1e-5
    assert errors[40] < 0.5 * errors[1]


def test_four_sentences_of_two_words_are_needed() -> None:
    model, trees = small_model(), random_trees(4)
    enough = AnalysisInput(model, encode_texts(model, trees))
    assert missing_tree_edges(enough) is None
    assert "four sentences" in str(missing_tree_edges(replace(enough, texts=enough.texts[:3])))
    marks = [replace(tree, tags=("PUNCT",) * len(tree.words)) for tree in trees]
    reason = missing_tree_edges(AnalysisInput(model, encode_texts(model, marks)))
    assert "depends on another" in str(reason)
