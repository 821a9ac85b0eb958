"""Trees in attention and in states: which sentences are asked, and which links are edges."""

import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.planted.trees import random_trees
from bertwright.analysis.probing.structural import sentence_of
from bertwright.analysis.syntax.attention_or_states import LEAST
from bertwright.analysis.syntax.attention_parser import Seen
from bertwright.analysis.syntax.ways_to_trees import links_found, parsed
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree

FOUR = Tree(WORDS[:4], (-1, 0, 1, 1), ("dep",) * 4, ("X", "X", "PUNCT", "X"))


def test_links_between_words_that_count_are_edges_either_way() -> None:
    along = torch.zeros(4, 4)
    # The greatest weights, to and from punctuation, are passed by.
    along[[0, 1, 2, 3], [2, 0, 1, 2]] = 0.9
    along[0, 3] = along[3, 1] = 0.5
    weights = torch.stack((along, along.mT))
    seen = Seen(torch.cat((weights, weights.mT)).permute(1, 2, 0), *(torch.zeros(4),) * 3)
    found = links_found(seen, sentence_of(FOUR))
    # A head that looks along edges, and one that is looked at along them.
    assert found.tolist() == [[2, found[0, 1]], [found[1, 0], 2]]
    assert sentence_of(FOUR).edges == {(0, 1), (1, 3)}


def test_sentences_that_are_cut_or_have_no_edge_are_passed_by() -> None:
    alone = Tree(WORDS[:2], (-1, 0), ("root", "punct"), ("X", "PUNCT"))
    subject = small_subject()
    whole, single, other = read_texts(subject, [FOUR, alone, FOUR])
    (cut,) = read_texts(subject, [FOUR], length=4)
    assert parsed([cut, single, whole, other], 9) == [whole, other]
    assert parsed([cut, single, whole, other], 1) == [whole]


@pytest.mark.parametrize("number", [LEAST - 1, LEAST])
def test_few_sentences_say_nothing(number: int) -> None:
    subject, choice = small_subject(), Analysis.choose("attention-or-states")
    lacks = choice.lacks(Case(subject, read_texts(subject, random_trees(number))))
    assert (lacks is None) == (number == LEAST)
    plain = choice.lacks(Case(subject, read_texts(subject, [Example("the keeper sees a ship")])))
    assert "CoNLL-U" in str(plain)
