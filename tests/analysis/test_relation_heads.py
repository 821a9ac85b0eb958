"""Heads that look along relations: one that is wired to the tree is found, and no more than it."""

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.syntax.relation_heads import guesses
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree


def trees(number: int = 24, size: int = 7) -> list[Tree]:
    """Sentences of random words and trees, in which relations say nothing of distance."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(number):
        words = tuple(generator.choice(WORDS[:12], size))
        heads = [int(generator.choice([i for i in range(size) if i != w])) for w in range(size)]
        heads[0] = -1
        relations = ["root", *generator.choice(["obj", "nsubj"], size - 1)]
        found.append(Tree(words, tuple(heads), tuple(relations), ("X",) * size))
    return found


def wired(weights: torch.Tensor, own: list[Tree]) -> torch.Tensor:
    """Head 2 looks from each word at what it depends on; each word is one piece."""
    weights = weights.clone()
    for row, tree in enumerate(own):
        for word, head in enumerate(tree.heads):
            weights[row, 2, 1 + word] = 0
            weights[row, 2, 1 + word, 1 + max(head, 0)] = 1
    return weights


def test_a_head_that_is_wired_to_the_tree_is_found() -> None:
    subject, own = small_subject(), trees()
    case = Case(subject, read_texts(subject, own))
    # All sentences are of one length, so that they come in their order.
    at = iter(range(0, len(own), 1))
    rows: list[int] = []

    def replaced(weights: torch.Tensor) -> torch.Tensor:
        rows[:] = [next(at) for _ in range(len(weights))]
        return wired(weights, [own[n] for n in rows])

    with subject.encoder.replace("blocks.1.attention.weights", replaced):
        found = Analysis.choose({"kind": "relation-heads", "least": 5}).run(case)
    assert {f.metric for f in found.findings} == {"accuracy of obj", "accuracy of nsubj"}
    for finding in found.findings:
        assert (finding.layer, finding.head, finding.value) == (1, 2, 1.0)
        assert finding.note == "looks at its head"
        assert finding.baseline.value < 0.7
        assert finding.adjusted < 0.05
        assert finding.lead[0] > 0


def test_what_is_not_there_is_not_found() -> None:
    subject, own = small_subject(), trees(number=40)
    found = Analysis.choose("relation-heads").run(Case(subject, read_texts(subject, own)))
    for finding in found.findings:
        assert finding.adjusted > 0.01 or finding.lead[0] < 0.25
        assert finding.value < 0.6


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
