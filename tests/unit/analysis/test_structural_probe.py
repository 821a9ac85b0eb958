"""Structural probe: planted trees, under any rotation."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.probing.structural_probe import (
    distance_spearman,
    squared_distances,
    tree_sentence,
)
from experiments.analyses.models import small_model
from experiments.analyses.trees import path_vectors, random_trees


def test_planted_trees_have_their_distances() -> None:
    for tree in random_trees(5):
        sentence, planted = tree_sentence(tree), torch.from_numpy(path_vectors(tree))
        distances = squared_distances(planted).numpy()
        np.testing.assert_allclose(distances, sentence.distances, atol=1e-6)
        assert sentence.num_correct_edges(distances) == len(sentence.edges) == len(tree.words) - 1
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
