"""Heads that attend to certain words: a planted head is found, and no link is its own baseline."""

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import AnalysisFinding, Count, StoredResult
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.syntax.attention_features import (
    AttentionFeatures,
    equally_distant_pairs,
    feature_links,
    feature_words,
)
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.formats.dependency_trees import DependencyTree
from experiments.analyses.attention import UNIFORM_HEADS, plant_attention
from experiments.analyses.grammar import sample_trees
from experiments.analyses.models import WORDS, small_model

VERB = 3


def sentences(number: int = 24, size: int = 7) -> list[DependencyTree]:
    """Return random sentences whose fourth word is the verb and the second its subject."""
    generator = np.random.default_rng(0)
    heads = [VERB] * size
    heads[VERB] = -1
    relations, tags = ["dep"] * size, ["X"] * size
    relations[VERB], relations[1], tags[VERB] = "root", "nsubj", "VERB"
    return [
        DependencyTree(
            tuple(generator.choice(WORDS[:12], size)), tuple(heads), tuple(relations), tuple(tags)
        )
        for _ in range(number)
    ]


def findings_with(targets: "dict[int, int | None]") -> dict[str, AnalysisFinding]:
    """Return findings with heads of the second block that attend to the verb from a word.

    From all words for None; from elsewhere to the opening token.
    """
    model = small_model()

    def plant(weights: torch.Tensor) -> torch.Tensor:
        weights = weights.clone()
        for head, word in targets.items():
            weights[:, head] = 0
            weights[:, head, :, 0] = 1
            queries = slice(None) if word is None else slice(1 + word, 2 + word)
            weights[:, head, queries, 0] = 0
            weights[:, head, queries, 1 + VERB] = 1
        return weights

    inputs = AnalysisInput(model, encode_texts(model, sentences()))
    with model.encoder.replace("blocks.1.attention.weights", plant):
        result = AttentionFeatures(min_sentences=5).run(inputs)
    return {finding.metric: finding for finding in result.findings}


def test_a_head_along_a_link_is_detected() -> None:
    link = findings_with({1: 1})["subject to verb"]
    assert (link.layer, link.head, link.value) == (1, 1, pytest.approx(1))
    assert link.baseline is not None
    assert link.baseline.value < 0.5


def inputs_with_subwords(system: str, sentences: list[DependencyTree]) -> AnalysisInput:
    """Return a small model whose words have one or more tokens."""
    changes = ("encoder.width=32", "encoder.depth.layers=2", "encoder.mixer.heads=4")
    recipe = Recipe.load(system, *changes)
    texts = [" ".join(tree.words) for tree in sentences]
    tokenizer = train_tokenizer(texts, WordPieceConfig(vocab_size=60))
    text_model = TextModel(
        Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, "float32"
    )
    model = AnalysedModel(system, text_model)
    return AnalysisInput(model, encode_texts(model, sentences))


@pytest.mark.parametrize("system", ["bert", "gpt"])
def test_uniform_attention_equals_its_baseline(system: str) -> None:
    """Whatever the visible positions and the number of tokens of a word."""
    trees = sample_trees(40, seed=1)
    inputs = inputs_with_subwords(system, trees)
    assert len({np.bincount(text.word_ids[text.word_ids >= 0]).max() for text in inputs.texts}) > 1
    with plant_attention(inputs.model, UNIFORM_HEADS):
        findings = AttentionFeatures(min_sentences=5).run(inputs).findings
    assert {"nouns", "subjects", "subject to verb"} <= {finding.metric for finding in findings}
    for finding in findings:
        assert finding.baseline is not None
        assert finding.value == pytest.approx(finding.baseline.value)
        assert (finding.difference_interval, finding.adjusted_p_value) == ((0, 0), 1)


def test_features_of_words_and_links() -> None:
    (tree, *_) = sentences(1)
    assert feature_words(tree, 7)["verbs"] == [VERB]
    assert feature_words(tree, VERB)["verbs"] == []
    assert feature_links(tree, 7)["subject to verb"] == [(1, VERB)]
    assert feature_links(tree, VERB)["subject to verb"] == []


def test_no_link_is_compared_with_itself() -> None:
    assert equally_distant_pairs([(1, 3)], 7) == [(0, 2)]
    assert equally_distant_pairs([(0, 2), (1, 3)], 4) == []
    assert equally_distant_pairs([(3, 1), (4, 2)], 5) == [(2, 0), (2, 0)]


def test_claims_count_the_features_that_occur() -> None:
    nouns = {"metric": "nouns", "adjusted_p_value": 0.001, "difference_interval": (0.1, 0.3)}
    verbs = {"metric": "verbs", "adjusted_p_value": 0.2, "difference_interval": (0.1, 0.3)}
    with_words = StoredResult({"num_texts": 30}, [nouns, verbs], {})
    (claim,) = AttentionFeatures().check_claims(with_words)
    assert claim.count == Count(1, 2, "features")
    assert not AttentionFeatures().check_claims(StoredResult({"num_texts": 30}, [], {}))
