"""States into which something was written, and what can be read of them."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.analysis.analysis import Case
from bertwright.analysis.planted.expecting import Expected, above, below, equal
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.planted.trees import RELATIONS, TAGS, path_vectors, random_trees
from bertwright.analysis.probing.description_length import code_lengths
from bertwright.analysis.probing.edges import EdgeProbe
from bertwright.analysis.probing.feature_layers import FIRST, LAST, LAST_FOUR, FeatureLayers
from bertwright.analysis.probing.identity import TokenIdentity
from bertwright.analysis.probing.linear import LinearProbe
from bertwright.analysis.probing.main_auxiliary import AUXILIARIES, Sentence, chosen, drawn, scorer
from bertwright.analysis.probing.numbers import Numbers
from bertwright.analysis.probing.structural import StructuralProbe
from bertwright.analysis.probing.word_places import WordPlaces
from bertwright.analysis.texts import read_texts
from bertwright.analysis.word_states import states_file
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree

Floats = NDArray[np.float32]


@contextmanager
def with_states(trees: Sequence[Tree], written: Floats) -> Generator[Case]:
    """A case whose words have these states (layers + 1, W, D), kept as those of a model are."""
    subject = small_subject("bert", f"encoder.depth.layers={len(written) - 1}")
    with TemporaryDirectory() as folder:
        case = Case(subject, read_texts(subject, trees), cache=Path(folder))
        np.save(states_file(case, Path(folder)), written)
        yield case


def noise(layers: int, words: int, width: int) -> Floats:
    """States of nothing."""
    return np.random.default_rng(1).normal(0, 0.3, (layers, words, width)).astype(np.float32)


def edges() -> Iterator[Expected]:
    """Parts of speech that are written in layer 1 and relations in layer 3 are known from there on,
    and read there."""
    own = random_trees(80)
    words = [(tree, n) for tree in own for n in range(len(tree.words))]
    states = noise(4, len(words), 8)
    for place, (tree, n) in enumerate(words):
        states[1, place, TAGS.index(tree.tags[n])] += 1
        if tree.heads[n] >= 0:
            states[3, place, 3 + RELATIONS.index(tree.relations[n])] += 1
    analysis = EdgeProbe(width=16, seeds=2, epochs=20, rate=1e-2)
    with with_states(own, states) as case:
        found = analysis.run(case)
    told = {f.metric: f.value for f in found.findings if f.layer is None}
    for name, layer in (("part of speech", 1), ("relation", 3)):
        scores = found.arrays[f"{name} scores"].mean(0)
        yield above(f"{name}, from where it is written", scores[layer:], 0.75)
        yield below(f"{name}, before", scores[:layer], 0.55)
        yield equal(f"{name}, expected layer", told[f"{name}: expected layer"], layer, 0.35)


def linear() -> Iterator[Expected]:
    """Tags that are written are read, drawn ones are not."""
    own = random_trees(60)
    tags = np.array([TAGS.index(tag) for tree in own for tag in tree.tags])
    states = noise(3, len(tags), 8)
    states[1:, np.arange(len(tags)), tags] += 2
    with with_states(own, states) as case:
        accuracy = LinearProbe().run(case).arrays["scores"][:, 0]
    yield equal("accuracy where nothing is written", accuracy[0], 1 / 3, 0.12)
    yield above("accuracy where tags are written", accuracy[1:], 0.95)


def feature_layers() -> Iterator[Expected]:
    """Tags that are written in one layer are read wherever that layer is."""
    own = random_trees(60)
    tags = np.array([TAGS.index(tag) for tree in own for tag in tree.tags])
    states = noise(4, len(tags), 8)
    states[2, np.arange(len(tags)), tags] += 2
    with with_states(own, states) as case:
        told = {f.metric: f.value for f in FeatureLayers().run(case).findings}
    for name in ("last but one", "sum of the last four", LAST_FOUR, "sum of all"):
        yield above(f"read in {name}", told[name], 0.9)
    for name in (FIRST, LAST):
        yield equal(f"read in {name}", told[name], 1 / 3, 0.12)


def word_places() -> Iterator[Expected]:
    """A place that is written is read, and otherwise is not."""
    own = random_trees(60)
    states = noise(3, 8 * len(own), 8)
    states[1, :, 3] = np.tile(np.arange(8), len(own))
    with with_states(own, states) as case:
        found = WordPlaces().run(case)
    baseline = found.findings[0].baseline
    assert baseline is not None, "it is held against the mean place"
    missed = found.arrays["missed by"]
    yield equal("always the mean place", baseline.value, 2, 1e-6)
    yield below("missed by where it is written", missed[1], 0.2)
    yield above("missed by where nothing is", missed[[0, 2]], 1.6)


def structural() -> Iterator[Expected]:
    """Trees that are written are found."""
    own = random_trees(120)
    paths = np.concatenate([path_vectors(tree) for tree in own])
    states = noise(3, len(paths), 8)
    states[2] = paths
    analysis = StructuralProbe(rank=8, rate=1e-2, epochs=30)
    with with_states(own, states) as case:
        found = analysis.run(case)
    told = {f.layer: f.value for f in found.findings if f.metric == "UUAS"}
    yield above("UUAS where trees are written", told[2], 0.85)
    yield below("UUAS of nothing", told[0], 0.5)


def description_length() -> Iterator[Expected]:
    """What follows from states costs next to nothing, what does not costs all."""
    generator = np.random.default_rng(0)
    states = generator.normal(size=(4000, 8))
    bits = 2 * len(states)
    follows = code_lengths(states, states[:, :4].argmax(1), 1.0).sum()
    drawn_labels = code_lengths(states, generator.integers(0, 4, len(states)), 1.0).sum()
    yield below("bits of what follows, relative", follows / bits, 0.2)
    yield equal("bits of what was drawn, relative", drawn_labels / bits, 1, 0.05)


def main_auxiliary() -> Iterator[Expected]:
    """States that know trees go on where those that know places go wrong."""
    generator = np.random.default_rng(0)
    plain, behind = ([drawn(generator, clause) for _ in range(200)] for clause in (False, True))
    main, other = (np.array([getattr(s, name) for s in behind]) for name in ("main", "other"))
    for knows, right in (("trees", 1.0), ("places", 0.0)):
        target = np.array([sentence.main for sentence in plain])
        said = chosen(*_marked(behind, knows), scorer(*_marked(plain, knows), target))
        yield equal(f"right by states that know {knows}", (said == main).mean(), right, 0.02)
        yield equal(f"misled, by states that know {knows}", (said == other).mean(), 1 - right, 0.02)


def _marked(sentences: Sequence[Sentence], knows: str) -> tuple[torch.Tensor, torch.Tensor]:
    """States (N, T, 6) that mark the main auxiliary, or the first; and what is a word."""
    sizes = torch.tensor([len(sentence.words) for sentence in sentences])
    real = torch.arange(int(sizes.max())) < sizes[:, None]
    found = torch.randn(*real.shape, 6, generator=torch.Generator().manual_seed(0)) / 10
    for row, sentence in enumerate(sentences):
        first = next(n for n, word in enumerate(sentence.words) if word in AUXILIARIES)
        found[row, sentence.main if knows == "trees" else first, 0] += 3
    return found, real


def numbers() -> Iterator[Expected]:
    """A value that is written in a state is read, and otherwise is not."""
    generator = np.random.default_rng(0)
    for question in Numbers().questions(0):
        states = generator.normal(0, 1, (len(question.values), 8))
        errors, others = question.left(states)
        yield above(f"{question.name}, left of nothing", errors.sum() / others.sum(), 0.8)
        states[:, 3] = question.values / 100
        errors, others = question.left(states)
        yield below(f"{question.name}, left where it is written", errors.sum() / others.sum(), 0.01)


def identity() -> Iterator[Expected]:
    """Every word is itself before the blocks."""
    subject = small_subject()
    texts = [" ".join(np.random.default_rng(n).permutation(WORDS)[:8]) for n in range(60)]
    case = Case(subject, read_texts(subject, [Example(text) for text in texts]))
    rates = TokenIdentity().run(case).arrays["rates"]
    yield equal("identified before the blocks", rates[0], 1)
    yield above("identified by a map that is learned", rates[:, 0], 0.8)
