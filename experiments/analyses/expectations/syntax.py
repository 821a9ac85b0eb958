"""Heads with attention planted from trees, and to verbs."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from torch import Tensor

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.syntax.attention_features import AttentionFeatures
from bertwright.analysis.syntax.attention_or_states import LINEAR_CHAIN, AttentionOrStates
from bertwright.analysis.syntax.attention_parser import AttentionParser
from bertwright.analysis.syntax.coreference import Coreference
from bertwright.analysis.syntax.relation_heads import DIRECTIONS, RelationHeads
from bertwright.analysis.syntax.stories import CoreferenceStory
from bertwright.analysis.syntax.tree_methods import TREE_METHODS
from bertwright.tasks.formats.dependency_trees import DependencyTree
from experiments.analyses.attention import UNIFORM_HEADS, plant_attention
from experiments.analyses.expectations.probing import noise_states, planted_states
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_same,
    expect_verdicts,
)
from experiments.analyses.models import small_model
from experiments.analyses.trees import path_vectors, plant_tree_attention, random_trees

SUBJECT_INDEX, VERB_INDEX = 1, 3


def expect_relation_heads() -> Iterator[ExpectedValue]:
    """Check that the planted head has every relation, and that no other model has one."""
    model, trees = small_model(), random_trees(40)
    inputs, analysis = AnalysisInput(model, encode_texts(model, trees)), RelationHeads()
    with plant_tree_attention(model, trees):
        findings = analysis.run(inputs).findings
    heads = {(f.layer, f.head, f.note) for f in findings}
    yield expect_same("heads", heads, {(1, 2, DIRECTIONS[0])})
    yield expect_equal("accuracy", [f.value for f in findings], 1, 0)
    lower = [f.difference_interval[0] for f in findings if f.difference_interval]
    yield expect_above("difference to offsets", lower, 0)
    p_values = [f.adjusted_p_value or 0.0 for f in findings]
    yield expect_below("adjusted p-value", p_values, 0.05)
    unplanted = [f.value for f in analysis.run(inputs).findings]
    yield expect_below("accuracy without planted attention", unplanted, 0.6)


def expect_attention_parser() -> Iterator[ExpectedValue]:
    """Check that the planted head carries the parser."""
    model, trees = small_model(), random_trees(60, 7)
    inputs = AnalysisInput(model, encode_texts(model, trees))
    with plant_tree_attention(model, trees):
        result = AttentionParser(learning_rate=0.3).run(inputs)
    values = {f.metric: f.value for f in result.findings}
    yield expect_above("UAS, attention", values["UAS, attention"], 0.95)
    others = [values[f"UAS, {name}"] for name in ("untrained", "distances", "next word")]
    yield expect_below("UAS of all others", others, 0.5)
    # 2 layers of 4 heads, attention from the dependent first.
    yield expect_same("the largest weight", int(result.arrays["weights"].argmax()), 4 + 2)


def expect_attention_or_states() -> Iterator[ExpectedValue]:
    """Check that trees planted in a head or in hidden states are found there only."""
    trees, few, analysis = random_trees(120), random_trees(40), AttentionOrStates(rank=8)
    with (
        planted_states(few, noise_states(3, 8 * len(few), 8)) as inputs,
        plant_tree_attention(inputs.model, few),
    ):
        findings = {f.metric: f for f in analysis.run(inputs).findings}
    for name in ("links of one head", "one head"):
        finding = findings[f"UUAS, {name}"]
        yield expect_same(f"the head of {name}", (finding.layer, finding.head), (1, 2))
        yield expect_equal(f"UUAS of {name}", finding.value, 1, 0)
    yield expect_above("UUAS, weighted heads", findings["UUAS, weighted heads"].value, 0.95)
    yield expect_below("UUAS of noise", findings["UUAS, hidden states"].value, 0.5)

    states = noise_states(3, 8 * len(trees), 8)
    states[2] = np.concatenate([path_vectors(tree) for tree in trees])
    with planted_states(trees, states) as inputs:
        findings = {f.metric: f for f in analysis.run(inputs).findings}
    finding = findings["UUAS, hidden states"]
    yield expect_above("UUAS, hidden states", finding.value, 0.85)
    yield expect_same("their layer", finding.note, "layer 2 (0: embeddings)")
    names = [
        LINEAR_CHAIN,
        *(f"{name}, untrained" for name in TREE_METHODS),
        *(set(TREE_METHODS) - {"hidden states"}),
    ]
    others = [findings[f"UUAS, {name}"].value for name in names]
    yield expect_below("UUAS of all others", others, 0.5)


def expect_attention_features() -> Iterator[ExpectedValue]:
    """Check a head that attends to verbs, and one that attends to them from subjects only."""
    model, trees = small_model(), [_with_verb(tree) for tree in random_trees(24, 7)]

    def attend_to_verb(weights: Tensor, _: DependencyTree) -> None:
        weights[1:3] = 0
        weights[1, :, 0] = 1
        weights[1, 1 + SUBJECT_INDEX] = 0
        weights[2, :, 1 + VERB_INDEX] = weights[1, 1 + SUBJECT_INDEX, 1 + VERB_INDEX] = 1

    inputs = AnalysisInput(model, encode_texts(model, trees))
    with plant_tree_attention(model, trees, attend_to_verb):
        result = AttentionFeatures(min_sentences=5).run(inputs)
    findings = {f.metric: f for f in result.findings}
    for name, head in (("verbs", 2), ("subject to verb", 1)):
        finding = findings[name]
        yield expect_same(f"the head of {name}", (finding.layer, finding.head), (1, head))
        yield expect_equal(f"attention to {name}", finding.value, 1)
        yield expect_below(f"adjusted p-value of {name}", finding.adjusted_p_value or 0.0, 0.05)


def expect_coreference() -> Iterator[ExpectedValue]:
    """Check a planted head, and that uniform attention has the score of chance."""
    inputs, analysis = AnalysisInput(small_model(), []), Coreference(num_stories=20)
    stories, _ = analysis.sample_stories(inputs)
    trees = [_story_tree(s) for s in sorted(stories, key=lambda story: -len(story.words))]
    with plant_tree_attention(inputs.model, trees):
        result = analysis.run(inputs)
    findings = result.findings
    claims = ("than the nearest mention", "than the same word", "than a rule of word")
    # The rule finds nearly all mentions as well.
    expected = dict.fromkeys(claims[:2], "seen")
    yield from expect_verdicts("the right mention", analysis, result, expected)
    with _plant_wrong_mentions(inputs.model, stories):
        result = analysis.run(inputs)
    expected = dict(zip(claims, ("opposite", "opposite", "seen"), strict=True))
    yield from expect_verdicts("another mention", analysis, result, expected)
    best = [f for f in findings if f.metric.startswith("best head, ")]
    yield expect_same("heads", {(f.layer, f.head) for f in best}, {(1, 2)})
    yield expect_equal("score of the planted head", [f.value for f in best], 1, 0)
    differences = [f for f in findings if f.metric == "best head minus nearest mention, all"]
    p_values = [f.adjusted_p_value or 0.0 for f in differences]
    yield expect_below("adjusted p-value", p_values, 0.05)
    others = [f.value for f in findings if f.metric in ("nearest mention, all", "untrained, all")]
    yield expect_below("scores of the others", others, 0.7)
    with plant_attention(inputs.model, UNIFORM_HEADS):
        scores = analysis.run(inputs).arrays["trained"]
    chance = np.mean([story.is_coreferent.mean() for story in stories])
    yield expect_equal("score of uniform attention", scores, chance)


@contextmanager
def _plant_wrong_mentions(
    model: AnalysedModel, stories: Sequence[CoreferenceStory]
) -> Generator[None]:
    """Let all heads attend from each mention to resolve to a mention of another person."""

    def attend(weights: Tensor, tree: DependencyTree) -> None:
        (word,) = (n for n, head in enumerate(tree.heads) if head >= 0)
        weights[:, 1 + word] = 0
        weights[:, 1 + word, 1 + tree.heads[word]] = 1

    ordered = sorted(stories, key=lambda story: -len(story.words))
    trees = [_story_tree(story, is_right=False) for story in ordered]
    with (
        plant_tree_attention(model, trees, attend, layer=0),
        plant_tree_attention(model, trees, attend, layer=1),
    ):
        yield


def _story_tree(story: CoreferenceStory, is_right: bool = True) -> DependencyTree:
    """Return a tree in which the anaphor depends on its first antecedent, or another mention."""
    matches = story.is_coreferent == is_right
    size, first = len(story.words), story.antecedents[int(matches.argmax())]
    heads = [-1] * size
    heads[story.anaphor.word_index] = first.word_index
    return DependencyTree(story.words, tuple(heads), ("dep",) * size, ("X",) * size)


def _with_verb(tree: DependencyTree) -> DependencyTree:
    size = len(tree.words)
    heads = tuple(-1 if n == VERB_INDEX else VERB_INDEX for n in range(size))
    relations = {SUBJECT_INDEX: "nsubj", VERB_INDEX: "root"}
    tags = tuple("VERB" if n == VERB_INDEX else "X" for n in range(size))
    return DependencyTree(
        tree.words, heads, tuple(relations.get(n, "dep") for n in range(size)), tags
    )
