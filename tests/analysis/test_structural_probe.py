"""Trees in states: their distances, whatever turns them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.planted.trees import path_vectors, random_trees
from bertwright.analysis.probing.structural import (
    distances,
    rank_correlation,
    sentence_of,
)
from bertwright.analysis.texts import read_texts


def test_planted_trees_are_their_distances() -> None:
    for tree in random_trees(5):
        sentence, planted = sentence_of(tree), torch.from_numpy(path_vectors(tree))
        said = distances(planted).numpy()
        np.testing.assert_allclose(said, sentence.distances, atol=1e-6)
        assert sentence.edges_found(said) == len(sentence.edges) == len(tree.words) - 1
        assert rank_correlation([sentence], [said]) == pytest.approx(1)
        turned = torch.linalg.qr(torch.randn(8, 8)).Q
        torch.testing.assert_close(distances(planted @ turned), distances(planted))


def test_a_sentence_of_punctuation_counts_nothing() -> None:
    for tree in random_trees(3):
        sentence = sentence_of(replace(tree, tags=("PUNCT",) * len(tree.words)))
        assert sentence.edges_found(sentence.along) == len(sentence.edges) == 0


def test_a_report_of_a_small_model(tmp_path: Path) -> None:
    subject = small_subject()
    case = Case(subject, read_texts(subject, random_trees(20)), cache=tmp_path)
    found = Analysis.choose({"kind": "structural-probe", "rank": 8, "epochs": 2}).run(case)
    assert found.arrays["scores"].shape == (3, 2)
    assert [f.layer for f in found.findings if f.metric == "UUAS"] == [0, 1, 2]
