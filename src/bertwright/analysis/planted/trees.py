"""Sentences of random words with random trees, and what can be planted of them."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.planted.models import WORDS
from bertwright.analysis.subject import Subject
from bertwright.tasks.formats.treebank import Tree

TAGS, RELATIONS = ("NOUN", "VERB", "DET"), ("nsubj", "obj", "amod")


def random_trees(number: int, size: int = 8, seed: int = 0) -> list[Tree]:
    """Trees of which nothing can be told by words or places: each word hangs on one that came
    before it in an order of its own; tags and relations are drawn."""
    generator = np.random.default_rng(seed)
    found: list[Tree] = []
    for _ in range(number):
        order, heads = generator.permutation(size), [-1] * size
        for place in range(1, size):
            heads[order[place]] = int(order[generator.integers(place)])
        words = tuple(map(str, generator.choice(WORDS[:20], size)))
        relations = map(str, generator.choice(RELATIONS, size))
        named = tuple("root" if h < 0 else r for h, r in zip(heads, relations, strict=True))
        tags = tuple(map(str, generator.choice(TAGS, size)))
        found.append(Tree(words, tuple(heads), named, tags))
    return found


def path_vectors(tree: Tree) -> NDArray[np.float32]:
    """Every edge has a direction of its own; a word is the sum of those on its way to the root:
    (W, W), whose squared distances are those in the tree."""
    own = np.zeros((len(tree.words), len(tree.words)), np.float32)
    for word in range(len(tree.words)):
        at = word
        while tree.heads[at] >= 0:
            own[word, at] = 1
            at = tree.heads[at]
    return own


Wire = Callable[[Tensor, Tree], None]
"""Writes into the weights (H, T, T) of one sentence, whose words are one piece each behind the
opening one."""


def along_edges(weights: Tensor, tree: Tree) -> None:
    """Head 2 looks from each word at what it depends on, from the root at the opening."""
    for word, head in enumerate(tree.heads):
        weights[2, 1 + word] = 0
        weights[2, 1 + word, 1 + head] = 1


@contextmanager
def wired(
    subject: Subject, trees: Sequence[Tree], wire: Wire = along_edges, layer: int = 1
) -> Generator[None]:
    """Weights of a layer as they are written for each sentence, in their order: sentences of one
    length are read so."""
    at: Iterator[Tree] = iter(trees)

    def replaced(weights: Tensor) -> Tensor:
        weights = weights.clone()
        for row in weights:
            wire(row, next(at))
        return weights

    with subject.encoder.replace(f"blocks.{layer}.attention.weights", replaced):
        yield
