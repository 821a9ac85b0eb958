"""Heads for dependency relations: predictions are other words, and treebanks are read."""

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.syntax.relation_heads import predicted_dependency_heads
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import small_model


def test_predictions_ignore_the_scale_and_the_word_itself() -> None:
    weights = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0))
    predicted = predicted_dependency_heads(weights)
    np.testing.assert_array_equal(
        predicted[0], predicted_dependency_heads(weights * torch.rand(2, 5, 1))[0]
    )
    assert (predicted != np.arange(5)).all()


def test_plain_texts_have_no_relations() -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, [Example("the keeper sees a ship")]))
    reason = Analysis.parse("relation-heads").not_applicable(inputs)
    assert reason is not None
    assert "CoNLL-U" in reason


@pytest.mark.real_data
def test_a_treebank_is_read(shared_data) -> None:
    from bertwright.tasks.formats.dependency_trees import read_trees

    trees = read_trees(shared_data / "ud_en_ewt" / "en_ewt-ud-dev.conllu.gz")
    assert len(trees) == 2001
    for tree in trees[:200]:
        assert tree.heads.count(-1) == 1
        assert len(tree.words) == len(tree.heads) == len(tree.relations) == len(tree.tags)
