"""Heads that look at certain words: one that is wired along a link is found, and no link is
its own baseline."""

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Case
from bertwright.analysis.findings import Finding
from bertwright.analysis.planted.attention import EVEN, pointing
from bertwright.analysis.planted.grammar import trees
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.syntax.features import AttentionFeatures, as_far_apart, featured, linked
from bertwright.analysis.texts import read_texts
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.formats.treebank import Tree
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer

VERB = 3


def sentences(number: int = 24, size: int = 7) -> list[Tree]:
    """Random words, of which the fourth is the verb and the second its subject."""
    generator = np.random.default_rng(0)
    heads = [VERB] * size
    heads[VERB] = -1
    relations, tags = ["dep"] * size, ["X"] * size
    relations[VERB], relations[1], tags[VERB] = "root", "nsubj", "VERB"
    return [
        Tree(tuple(generator.choice(WORDS[:12], size)), tuple(heads), tuple(relations), tuple(tags))
        for _ in range(number)
    ]


def found_with(wire: "dict[int, int | None]") -> dict[str, Finding]:
    """What is found where a head of the second block looks from a place (from all: None) at the
    verb, and elsewhere at the opening."""
    subject = small_subject()

    def wired(weights: torch.Tensor) -> torch.Tensor:
        weights = weights.clone()
        for head, word in wire.items():
            weights[:, head] = 0
            weights[:, head, :, 0] = 1
            rows = slice(None) if word is None else slice(1 + word, 2 + word)
            weights[:, head, rows, 0] = 0
            weights[:, head, rows, 1 + VERB] = 1
        return weights

    case = Case(subject, read_texts(subject, sentences()))
    with subject.encoder.replace("blocks.1.attention.weights", wired):
        found = AttentionFeatures(least=5).run(case)
    return {finding.metric: finding for finding in found.findings}


def test_a_head_that_looks_along_a_link_is_found() -> None:
    link = found_with({1: 1})["subject to verb"]
    assert (link.layer, link.head, link.value) == (1, 1, pytest.approx(1))
    assert link.baseline is not None
    assert link.baseline.value < 0.5


def read_in_pieces(system: str, sentences: list[Tree]) -> Case:
    """A model of the same size whose words are of several pieces, some more than others."""
    changes = ("encoder.width=32", "encoder.depth.layers=2", "encoder.mixer.heads=4")
    recipe = Recipe.load(system, *changes)
    said = [" ".join(tree.words) for tree in sentences]
    tokenizer = train_tokenizer(said, WordPieceChoice(size=60))
    model = TextModel(Model.build(recipe, tokenizer.size, tokenizer), tokenizer, "float32")
    subject = Subject(system, model)
    return Case(subject, read_texts(subject, sentences))


@pytest.mark.parametrize("system", ["bert", "gpt"])
def test_even_attention_leads_nowhere(system: str) -> None:
    """Whatever a place sees, and of however many pieces a word is."""
    own = trees(40, seed=1)
    case = read_in_pieces(system, own)
    assert len({np.bincount(text.word[text.word >= 0]).max() for text in case.texts}) > 1
    with pointing(case.subject, EVEN):
        found = AttentionFeatures(least=5).run(case).findings
    assert {"nouns", "subjects", "subject to verb"} <= {finding.metric for finding in found}
    for finding in found:
        assert finding.baseline is not None
        assert finding.value == pytest.approx(finding.baseline.value)
        assert (finding.lead, finding.adjusted) == ((0, 0), 1)


def test_a_feature_is_what_its_words_are() -> None:
    (tree, *_) = sentences(1)
    assert featured(tree, 7)["verbs"] == [VERB]
    assert featured(tree, VERB)["verbs"] == []
    assert linked(tree, 7)["subject to verb"] == [(1, VERB)]
    assert linked(tree, VERB)["subject to verb"] == []


def test_no_link_is_held_against_itself() -> None:
    assert as_far_apart([(1, 3)], 7) == [(0, 2)]
    assert as_far_apart([(0, 2), (1, 3)], 4) == []
    assert as_far_apart([(3, 1), (4, 2)], 5) == [(2, 0), (2, 0)]
