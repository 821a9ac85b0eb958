"""Structural probe: a linear map after which squared distances approximate tree distances.

Hewitt and Manning (2019).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy import stats
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from torch import Tensor, nn

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.requirements import missing_trees
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import AnalysedText
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, WordStates, compute_word_states
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray, bootstrap_ratio, split_halves
from bertwright.tasks.formats.dependency_trees import DependencyTree

BATCH_SIZE = 20
"""Number of sentences per step."""

MAX_EPOCHS_WITHOUT_GAIN = 5
"""Epochs without improvement on a held-out tenth of the training sentences before stopping."""

BEST_MINUS_CHAIN = "UUAS, best layer minus linear chain"
BEST_MINUS_EMBEDDINGS = "UUAS, best layer minus embeddings"


Edge = tuple[int, int]


@dataclass(frozen=True)
class TreeSentence:
    """A sentence with its tree.

    Attributes:
        first_word: Index of its first word among all words.
        distances: Distances in the tree, (W, W).
        edges: Edges between words that are not punctuation.
        scored_words: Indices of words that are not punctuation.
    """

    first_word: int
    distances: FloatArray
    edges: frozenset[Edge]
    scored_words: NDArray[np.int64]

    @property
    def chain_distances(self) -> FloatArray:
        """Distances in the linear chain of words, (W, W)."""
        positions = np.arange(len(self.distances))
        return np.abs(positions[:, None] - positions).astype(np.float64)

    def hidden_states(self, word_states: WordStates, layer: int) -> Tensor:
        """Return the hidden states of its words (W, D)."""
        words = slice(self.first_word, self.first_word + len(self.distances))
        return torch.from_numpy(np.array(word_states.states[layer, words]))

    def num_correct_edges(self, predicted_distances: NDArray[Any]) -> int:
        """Return how many edges of the minimum spanning tree of distances (W, W) are correct."""
        if not self.edges:
            return 0
        distances = np.asarray(predicted_distances, np.float64)[
            np.ix_(self.scored_words, self.scored_words)
        ]
        # scipy treats a distance of 0 as no edge.
        tree = minimum_spanning_tree(distances - distances.min() + 1.0).tocoo()
        predicted = {
            (int(min(a, b)), int(max(a, b)))
            for a, b in zip(self.scored_words[tree.row], self.scored_words[tree.col], strict=True)
        }
        return len(predicted & self.edges)


def tree_sentences(texts: Sequence[AnalysedText]) -> list[TreeSentence]:
    """Return the trees of texts with several words that are not truncated."""
    starts = np.cumsum([0, *(len(text.words) for text in texts)]).tolist()
    return [
        tree_sentence(text.tree, start)
        for start, text in zip(starts, texts, strict=False)
        if len(text.words) == len(text.tree.words) > 1
    ]


def tree_sentence(tree: DependencyTree, first_word: int = 0) -> TreeSentence:
    """Compute the distances and edges of a tree."""
    size = len(tree.words)
    graph = np.zeros((size, size))
    edges: set[Edge] = set()
    for word, head in enumerate(tree.heads):
        if head >= 0:
            graph[word, head] = 1
            if "PUNCT" not in (tree.tags[word], tree.tags[head]):
                edges.add((min(word, head), max(word, head)))
    distances = np.asarray(shortest_path(graph, directed=False, unweighted=True), np.float64)
    scored = np.array([n for n, tag in enumerate(tree.tags) if tag != "PUNCT"], np.int64)
    return TreeSentence(first_word, distances, frozenset(edges), scored)


def missing_tree_edges(inputs: AnalysisInput) -> str | None:
    """Require sentences with several words and edges in the test half."""
    sentences = tree_sentences(inputs.texts)
    if len(sentences) < 4:
        return "it needs four sentences of two words: two to train on, two to test on"
    _, test = split_halves(len(sentences), inputs.seed)
    if not any(sentences[n].edges for n in test):
        return "no word of the test sentences depends on another: give more sentences"
    return None


class StructuralProbe(Analysis):
    """How well trees are recovered from a linear map of each layer to ``rank`` dimensions.

    The map is trained on half of the sentences, so that squared distances between words match tree
    distances. On the other half, minimum spanning trees are compared with the true trees (UUAS,
    without punctuation), and the ranks of distances are correlated. The baseline is the linear
    chain of words. The best layer is selected on a held-out part of the training sentences.
    """

    kind: Literal["structural-probe"] = "structural-probe"
    rank: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    epochs: int = Field(default=30, ge=1)
    survey_id = "B23"
    title = "Do trees lie in the space of hidden states, and in which layer?"
    source = "Hewitt and Manning 2019"
    taps = WORD_STATE_TAPS
    requires = (missing_trees, missing_tree_edges)
    claims = (
        Claim(
            "the best layer is closer to the trees than the linear chain",
            "79.8 % and 48.9 % in layer 7 of BERT-base",
            BEST_MINUS_CHAIN,
        ),
        Claim(
            "the best layer is closer to the trees than the embeddings",
            "26.8 % in the embeddings of ELMo, 77.0 % after its first layer",
            BEST_MINUS_EMBEDDINGS,
        ),
    )
    plots = (
        LayerCurves(
            "",
            lambda r: {
                "UUAS": r.arrays["scores"][:, 0],
                "Spearman of distances": r.arrays["scores"][:, 1],
                "UUAS of the linear chain": r.arrays["chain"],
            },
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        word_states = compute_word_states(inputs)
        sentences = tree_sentences(inputs.texts)
        train, test_indices = split_halves(len(sentences), inputs.seed)
        test = [sentences[n] for n in test_indices]
        chain = [sentence.num_correct_edges(sentence.chain_distances) for sentence in test]
        num_edges = [len(sentence.edges) for sentence in test]
        findings = Findings(inputs.seed, includes_embeddings=True)
        findings.add_ratio("UUAS of the linear chain", chain, num_edges)
        scores = np.zeros((word_states.num_layers, 2))
        num_correct: list[list[int]] = []
        probes, best = fit_layer_probes(
            word_states, [sentences[n] for n in train], self, inputs.seed
        )
        for layer, probe in enumerate(probes):
            predicted = [
                squared_distances(sentence.hidden_states(word_states, layer) @ probe).numpy()
                for sentence in test
            ]
            num_correct.append(
                [s.num_correct_edges(p) for s, p in zip(test, predicted, strict=True)]
            )
            interval = bootstrap_ratio(num_correct[layer], num_edges, seed=inputs.seed)
            baseline = BaselineValue("linear chain", sum(chain) / max(sum(num_edges), 1))
            findings.add_interval("UUAS", interval, layer, baseline=baseline)
            correlation = distance_spearman(test, predicted)
            if not np.isnan(correlation):
                findings.add_value("Spearman of distances", correlation, layer=layer)
            scores[layer] = interval.value, correlation
        for metric, other in ((BEST_MINUS_CHAIN, chain), (BEST_MINUS_EMBEDDINGS, num_correct[0])):
            findings.add_difference(metric, (num_correct[best], num_edges), (other, num_edges))
        chain_score = np.array(sum(chain) / sum(num_edges))
        return AnalysisResult(findings, {"scores": scores, "chain": chain_score})


def squared_distances(vectors: Tensor) -> Tensor:
    """Return squared distances (W, W) between vectors (W, k)."""
    return (vectors[:, None] - vectors[None]).square().sum(-1)


def fit_layer_probes(
    word_states: WordStates, sentences: Sequence[TreeSentence], config: StructuralProbe, seed: int
) -> tuple[list[Tensor], int]:
    """Fit the map of every layer; return the maps and the layer with the best held-out error.

    The test half is not used: there, the best of many layers would look better than it is.
    """
    fits = [
        fit_distance_probe(
            [sentence.hidden_states(word_states, layer) for sentence in sentences],
            [sentence.distances for sentence in sentences],
            config,
            seed,
        )
        for layer in range(word_states.num_layers)
    ]
    return [probe for probe, _ in fits], int(np.argmin([error for _, error in fits]))


def fit_distance_probe(
    states: Sequence[Tensor],
    tree_distances: Sequence[FloatArray],
    config: StructuralProbe,
    seed: int,
) -> tuple[Tensor, float]:
    """Fit a map (D, k) from states to tree distances; return it with its held-out error.

    The absolute error, summed over pairs and divided by the squared length, is minimised; the best
    map on a held-out tenth is kept.
    """
    targets = [torch.from_numpy(distances).float() for distances in tree_distances]
    generator = torch.Generator().manual_seed(stream_key(seed, "structural probe") >> 1)
    width = states[0].shape[1]
    probe = nn.Parameter((torch.rand(width, config.rank, generator=generator) - 0.5) / 10)
    optimizer = torch.optim.Adam([probe], config.learning_rate)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
    order = torch.randperm(len(states), generator=generator).tolist()
    held_out, train = order[: max(1, len(order) // 10)], order[max(1, len(order) // 10) :]

    def loss(index: int) -> Tensor:
        deviation = (squared_distances(states[index] @ probe) - targets[index]).abs()
        return deviation.sum() / len(deviation) ** 2

    best, epochs_without_gain, best_probe = float("inf"), 0, probe.detach().clone()
    for _ in range(config.epochs):
        for start in range(0, len(train), BATCH_SIZE):
            batch = train[start : start + BATCH_SIZE]
            optimizer.zero_grad()
            (torch.stack([loss(index) for index in batch]).mean()).backward()
            optimizer.step()
        with torch.no_grad():
            error = float(torch.stack([loss(index) for index in held_out]).mean())
        scheduler.step(error)
        epochs_without_gain = 0 if error < best - 1e-4 else epochs_without_gain + 1
        if error < best:
            best, best_probe = error, probe.detach().clone()
        if epochs_without_gain >= MAX_EPOCHS_WITHOUT_GAIN:
            break
    return best_probe, best


def distance_spearman(
    sentences: Sequence[TreeSentence], predicted_distances: Sequence[NDArray[Any]]
) -> float:
    """Return Spearman's correlation between the distances of each word, averaged.

    The mean is over words, then sentences of the same length, then lengths from 5 to 50 words.
    """
    by_length: dict[int, list[float]] = {}
    for sentence, predicted in zip(sentences, predicted_distances, strict=True):
        size = len(sentence.distances)
        if 5 <= size <= 50:
            by_word: list[Any] = [
                stats.spearmanr(a, b).statistic  # type: ignore[attr-defined]
                for a, b in zip(predicted, sentence.distances, strict=True)
            ]
            by_length.setdefault(size, []).append(float(np.nanmean(by_word)))
    return (
        float(np.mean([np.mean(values) for values in by_length.values()]))
        if by_length
        else float("nan")
    )
