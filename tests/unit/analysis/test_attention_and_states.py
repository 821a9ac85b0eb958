"""Trees in attention and in hidden states: which sentences are used, and which links are edges."""

import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.probing.structural_probe import tree_sentence
from bertwright.analysis.syntax.attention_or_states import MIN_SENTENCES
from bertwright.analysis.syntax.attention_parser import ParserExample
from bertwright.analysis.syntax.tree_methods import complete_sentences, num_correct_links
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import WORDS, small_model
from experiments.analyses.trees import random_trees

FOUR = DependencyTree(WORDS[:4], (-1, 0, 1, 1), ("dep",) * 4, ("X", "X", "PUNCT", "X"))


def test_links_in_either_direction_are_edges() -> None:
    weights_along = torch.zeros(4, 4)
    # The largest weights, to and from punctuation, are ignored.
    weights_along[[0, 1, 2, 3], [2, 0, 1, 2]] = 0.9
    weights_along[0, 3] = weights_along[3, 1] = 0.5
    weights = torch.stack((weights_along, weights_along.mT))
    example = ParserExample(
        torch.cat((weights, weights.mT)).permute(1, 2, 0), *(torch.zeros(4),) * 3
    )
    num_correct = num_correct_links(example, tree_sentence(FOUR))
    # One head attends along edges, the other one against them.
    assert num_correct.tolist() == [[2, num_correct[0, 1]], [num_correct[1, 0], 2]]
    assert tree_sentence(FOUR).edges == {(0, 1), (1, 3)}


def test_truncated_sentences_and_sentences_without_edges_are_skipped() -> None:
    without_edges = DependencyTree(WORDS[:2], (-1, 0), ("root", "punct"), ("X", "PUNCT"))
    model = small_model()
    whole, single, other = encode_texts(model, [FOUR, without_edges, FOUR])
    (truncated,) = encode_texts(model, [FOUR], max_length=4)
    assert complete_sentences([truncated, single, whole, other], 9) == [whole, other]
    assert complete_sentences([truncated, single, whole, other], 1) == [whole]


@pytest.mark.parametrize("number", [MIN_SENTENCES - 1, MIN_SENTENCES])
def test_few_sentences_are_not_enough(number: int) -> None:
    model, analysis = small_model(), Analysis.parse("attention-or-states")
    reason = analysis.not_applicable(
        AnalysisInput(model, encode_texts(model, random_trees(number)))
    )
    assert (reason is None) == (number == MIN_SENTENCES)
    plain = analysis.not_applicable(
        AnalysisInput(model, encode_texts(model, [Example("the keeper sees a ship")]))
    )
    assert "CoNLL-U" in str(plain)
