"""Heads that look along relations: guesses are other words, and trees are read."""

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.syntax.relation_heads import guesses
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


def test_scaling_a_row_changes_no_guess_and_no_word_guesses_itself() -> None:
    between = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0))
    found = guesses(between)
    np.testing.assert_array_equal(found[0], guesses(between * torch.rand(2, 5, 1))[0])
    assert (found != np.arange(5)).all()


def test_plain_texts_have_no_relations() -> None:
    subject = small_subject()
    case = Case(subject, read_texts(subject, [Example("the keeper sees a ship")]))
    lacks = Analysis.choose("relation-heads").lacks(case)
    assert lacks is not None
    assert "CoNLL-U" in lacks


@pytest.mark.real_data
def test_a_treebank_is_read(shared_data) -> None:
    from bertwright.tasks.formats.treebank import read_trees

    own = read_trees(shared_data / "ud_en_ewt" / "en_ewt-ud-dev.conllu.gz")
    assert len(own) == 2001
    for tree in own[:200]:
        assert tree.heads.count(-1) == 1
        assert len(tree.words) == len(tree.heads) == len(tree.relations) == len(tree.tags)
