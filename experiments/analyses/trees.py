"""Random sentences with random trees, and hidden states and attention planted from trees."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.core.model import AnalysedModel
from bertwright.tasks.formats.dependency_trees import DependencyTree
from experiments.analyses.models import WORDS

TAGS, RELATIONS = ("NOUN", "VERB", "DET"), ("nsubj", "obj", "amod")


def random_trees(num_trees: int, size: int = 8, seed: int = 0) -> list[DependencyTree]:
    """Sample trees that words and positions tell nothing about; tags and relations are random."""
    generator = np.random.default_rng(seed)
    trees: list[DependencyTree] = []
    for _ in range(num_trees):
        order, heads = generator.permutation(size), [-1] * size
        for index in range(1, size):
            heads[order[index]] = int(order[generator.integers(index)])
        words = tuple(map(str, generator.choice(WORDS[:20], size)))
        sampled = map(str, generator.choice(RELATIONS, size))
        relations = tuple("root" if h < 0 else r for h, r in zip(heads, sampled, strict=True))
        tags = tuple(map(str, generator.choice(TAGS, size)))
        trees.append(DependencyTree(words, tuple(heads), relations, tags))
    return trees


def path_vectors(tree: DependencyTree) -> NDArray[np.float32]:
    """Return vectors (W, W) whose squared distances are the tree distances.

    Every edge is a dimension; a word is the sum of the edges on its path to the root.
    """
    vectors = np.zeros((len(tree.words), len(tree.words)), np.float32)
    for word in range(len(tree.words)):
        node = word
        while tree.heads[node] >= 0:
            vectors[word, node] = 1
            node = tree.heads[node]
    return vectors


AttentionWriter = Callable[[Tensor, DependencyTree], None]
"""Writes the weights (H, T, T) of a sentence with one token per word after the opening token."""


def write_edges(weights: Tensor, tree: DependencyTree) -> None:
    """Let head 2 attend from each word to its head, and from the root to the opening token."""
    for word, head in enumerate(tree.heads):
        weights[2, 1 + word] = 0
        weights[2, 1 + word, 1 + head] = 1


@contextmanager
def plant_tree_attention(
    model: AnalysedModel,
    trees: Sequence[DependencyTree],
    writer: AttentionWriter = write_edges,
    layer: int = 1,
) -> Generator[None]:
    """Replace the attention of a layer, sentence by sentence in their order.

    Sentences must have the same length, or be sorted from the longest.
    """
    remaining: Iterator[DependencyTree] = iter(trees)

    def replace_weights(weights: Tensor) -> Tensor:
        weights = weights.clone()
        for sentence_weights in weights:
            writer(sentence_weights, next(remaining))
        return weights

    with model.encoder.replace(f"blocks.{layer}.attention.weights", replace_weights):
        yield
