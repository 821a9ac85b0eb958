"""Methods that recover trees from attention or hidden states.

Each is selected or trained on half of the sentences and scored on the other half.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.texts import AnalysedText
from bertwright.analysis.core.word_states import compute_word_states
from bertwright.analysis.probing.structural_probe import (
    StructuralProbe,
    TreeSentence,
    fit_layer_probes,
    squared_distances,
    tree_sentence,
    tree_sentences,
)
from bertwright.analysis.syntax.attention_parser import (
    AttentionParser,
    ParserExample,
    train_parser,
)
from bertwright.analysis.syntax.relation_heads import DIRECTIONS, predicted_dependency_heads
from bertwright.core.significance import split_halves

Counts = NDArray[np.int64]


class TreeMethodInputs:
    """Attention, hidden states and trees of sentences that are not truncated.

    Attributes:
        examples: Attention between the words of each sentence.
        word_states: Hidden states of all words.
        sentences: Trees.
        train_indices, test_indices: The two halves.
        parser_config, probe_config: Settings of the parser and the distance probe.
    """

    def __init__(
        self, inputs: AnalysisInput, parser_config: AttentionParser, probe_config: StructuralProbe
    ) -> None:
        self.inputs, self.parser_config, self.probe_config = inputs, parser_config, probe_config
        self.examples = parser_config.read_examples(inputs)
        self.word_states = compute_word_states(inputs)
        self.sentences = tree_sentences(inputs.texts)
        self.train_indices, self.test_indices = (
            half.tolist() for half in split_halves(len(self.examples), inputs.seed)
        )

    def num_correct_edges(self, sentence_index: int, similarity: Tensor) -> int:
        """Return how many edges of the maximum spanning tree of (W, W) similarities are correct."""
        symmetric = similarity.maximum(similarity.mT)
        return self.sentences[sentence_index].num_correct_edges(-symmetric.double().numpy())

    def score_test_sentences(self, similarity: Callable[[int], Tensor]) -> Counts:
        """Return each test sentence's correct edges; ``similarity`` maps its index to (W, W)."""
        return np.array(
            [self.num_correct_edges(number, similarity(number)) for number in self.test_indices]
        )


@dataclass(frozen=True)
class TreeMethodScores:
    """Correct edges of each test sentence, and the selected head."""

    num_correct: Counts
    layer: int | None = None
    head: int | None = None
    note: str | None = None


def complete_sentences(texts: Sequence[AnalysedText], max_sentences: int) -> list[AnalysedText]:
    """Return the first sentences that are not truncated and have scored edges."""
    complete = [
        text
        for text in texts
        if len(text.words) == len(text.tree.words) and tree_sentence(text.tree).edges
    ]
    return complete[:max_sentences]


def head_attention(example: ParserExample) -> Tensor:
    """Return attention between words of all heads, (heads, W, W)."""
    return example.pairs[..., : example.pairs.shape[-1] // 2].permute(2, 0, 1)


def num_correct_links(example: ParserExample, sentence: TreeSentence) -> Counts:
    """Return how many links to the most attended word are edges, (2, heads).

    The first dimension is the direction; punctuation is excluded.
    """
    scored = torch.from_numpy(sentence.scored_words)
    predicted = predicted_dependency_heads(head_attention(example)[:, scored][:, :, scored])
    first, second = np.searchsorted(sentence.scored_words, np.array(sorted(sentence.edges)).T)
    return ((predicted[..., first] == second) | (predicted[..., second] == first)).sum(-1)


def best_head_links(inputs: TreeMethodInputs) -> TreeMethodScores:
    """Score the links of the head and direction with the most correct edges."""
    pairs = zip(inputs.examples, inputs.sentences, strict=True)
    num_correct = np.array([num_correct_links(*pair) for pair in pairs])
    by_head = num_correct[inputs.train_indices].sum(0)
    direction, head = map(int, np.unravel_index(by_head.argmax(), by_head.shape))
    layer_and_head = divmod(head, inputs.inputs.model.num_heads)
    return TreeMethodScores(
        num_correct[inputs.test_indices, direction, head], *layer_and_head, DIRECTIONS[direction]
    )


def best_head_tree(inputs: TreeMethodInputs) -> TreeMethodScores:
    """Score the tree of the head with the most correct edges."""
    num_correct = [
        [
            inputs.num_correct_edges(number, weights)
            for weights in head_attention(inputs.examples[number])
        ]
        for number in inputs.train_indices
    ]
    head = int(np.sum(num_correct, axis=0).argmax())
    scores = inputs.score_test_sentences(
        lambda number: head_attention(inputs.examples[number])[head]
    )
    return TreeMethodScores(scores, *divmod(head, inputs.inputs.model.num_heads))


def mean_attention_tree(inputs: TreeMethodInputs) -> TreeMethodScores:
    """Score the tree of the mean attention over heads."""

    def similarity(number: int) -> Tensor:
        weights = head_attention(inputs.examples[number])
        return weights.maximum(weights.mT).mean(0)

    return TreeMethodScores(inputs.score_test_sentences(similarity))


def weighted_attention_tree(inputs: TreeMethodInputs) -> TreeMethodScores:
    """Score the tree of the attention parser's head probabilities."""
    train = [inputs.examples[number] for number in inputs.train_indices]
    weights = train_parser(train, inputs.parser_config, inputs.inputs.seed)

    def similarity(number: int) -> Tensor:
        return inputs.examples[number].scores(weights).log_softmax(1)[:, :-1]

    return TreeMethodScores(inputs.score_test_sentences(similarity))


def hidden_state_tree(inputs: TreeMethodInputs) -> TreeMethodScores:
    """Score the tree of a distance probe on the layer with the lowest held-out error."""
    probes, best = fit_layer_probes(
        inputs.word_states,
        [inputs.sentences[number] for number in inputs.train_indices],
        inputs.probe_config,
        inputs.inputs.seed,
    )

    def similarity(number: int) -> Tensor:
        states = inputs.sentences[number].hidden_states(inputs.word_states, best)
        return -squared_distances(states @ probes[best])

    return TreeMethodScores(
        inputs.score_test_sentences(similarity), note=f"layer {best} (0: embeddings)"
    )


TREE_METHODS: dict[str, Callable[[TreeMethodInputs], TreeMethodScores]] = {
    "links of one head": best_head_links,
    "one head": best_head_tree,
    "mean of all heads": mean_attention_tree,
    "weighted heads": weighted_attention_tree,
    "hidden states": hidden_state_tree,
}
"""Methods by name in reports."""
