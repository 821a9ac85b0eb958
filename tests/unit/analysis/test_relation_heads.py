"""Heads for dependency relations: predictions are other words, and treebanks are read."""

from collections import Counter

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.result import BaselineValue
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.syntax.relation_heads import RelationHeads, predicted_dependency_heads
from bertwright.core.significance import split_halves
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import WORDS, small_model
from experiments.analyses.trees import RELATIONS, plant_tree_attention, random_trees


def test_predictions_ignore_the_scale_and_the_word_itself() -> None:
    weights = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0))
    predicted = predicted_dependency_heads(weights)
    np.testing.assert_array_equal(
        predicted[0], predicted_dependency_heads(weights * torch.rand(2, 5, 1))[0]
    )
    assert (predicted != np.arange(5)).all()


def test_words_are_counted_by_relation_and_the_best_offset_is_selected_on_the_other_half() -> None:
    trees, model = random_trees(40), small_model()
    inputs = AnalysisInput(model, encode_texts(model, trees), seed=3)

    def attend(weights: torch.Tensor, tree: DependencyTree) -> None:
        """Let head 0 attend from each word to its dependents."""
        weights[0] = 0
        for word, head in enumerate(tree.heads):
            if head >= 0:
                weights[0, 1 + head, 1 + word] = 0.1

    with plant_tree_attention(model, trees), plant_tree_attention(model, trees, attend, layer=0):
        result = RelationHeads(min_words=1).run(inputs)
    train, test = split_halves(len(trees), 3)
    assert len(result.findings) == len(RELATIONS)
    for number, relation in enumerate(sorted(RELATIONS)):
        offsets = [
            [
                head - word
                for word, head in enumerate(tree.heads)
                if tree.relations[word] == relation
            ]
            for tree in trees
        ]
        num_words = sum(map(len, offsets))
        assert result.arrays["num_words"][number] == num_words
        correct = result.arrays["num_correct"][..., number]
        # By layer, head and direction.
        assert np.argwhere(correct == num_words).tolist() == [[0, 0, 1], [1, 2, 0]]
        counts = Counter(offset for n in train for offset in offsets[n] if abs(offset) <= 5)
        best = max(sorted(counts), key=counts.__getitem__)
        tested = [offset for n in test for offset in offsets[n]]
        (finding,) = (f for f in result.findings if f.metric == f"accuracy of {relation}")
        assert finding.baseline == BaselineValue(
            f"the word at {best:+d}", tested.count(best) / len(tested)
        )
        assert finding.difference_interval is not None
        assert finding.difference_interval[0] < 1 - finding.baseline.value
        assert finding.difference_interval[1] > 1 - finding.baseline.value


@pytest.mark.parametrize("offset", [-5, 5])
def test_the_baseline_reaches_five_words_in_both_directions(offset: int) -> None:
    heads = tuple(word + offset if 0 <= word + offset < 6 else -1 for word in range(6))
    relations = tuple("obj" if head >= 0 else "root" for head in heads)
    tree = DependencyTree(tuple(WORDS[:6]), heads, relations, ("NOUN",) * 6)
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, [tree] * 8))
    (finding,) = RelationHeads(min_words=1).run(inputs).findings
    assert finding.baseline == BaselineValue(f"the word at {offset:+d}", 1.0)


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
