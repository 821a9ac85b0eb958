"""Whether trees lie in the space of states (Hewitt and Manning 2019): a linear map after which
squared distances are distances in the tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from scipy import stats
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from torch import Tensor, nn

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.texts import ReadText, lacks_trees
from bertwright.analysis.word_states import SITES, WordStates, word_states
from bertwright.randomness import key
from bertwright.significance import halves, of_difference, of_ratio
from bertwright.tasks.formats.treebank import Tree

AT_ONCE = 20
"""Sentences of a step."""

PATIENCE = 5
"""Epochs without a gain on a tenth of what is learned from, after which learning ends."""


class StructuralProbe(Analysis):
    """A linear map of the states of each layer to ``rank`` numbers is learned on half of the
    sentences, such that squared distances between words come near their distances in the tree; on
    the other half the tree of the shortest distances is held against the true one (UUAS, without
    punctuation), and distances by rank. Beside it stands the chain in which every word hangs on its
    neighbour. The best layer is the one whose distances were best on what its map held out."""

    kind: Literal["structural-probe"] = "structural-probe"
    rank: int = Field(default=64, ge=1)
    rate: float = Field(default=1e-3, gt=0)
    epochs: int = Field(default=30, ge=1)
    number = "B23"
    group = "probing"
    question = "Do trees lie in the space of states, and in which layer?"
    source = "Hewitt and Manning 2019"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        return lacks_trees(case.texts) or self._lacks_edges(case) or super().lacks(case)

    def run(self, case: Case) -> Found:
        own = word_states(case)
        sentences = sentences_of(case.texts)
        choosing, judging = halves(len(sentences), case.seed)
        judged = [sentences[n] for n in judging]
        chain = [sentence.edges_found(sentence.along) for sentence in judged]
        total = [len(sentence.edges) for sentence in judged]
        findings = [Finding.over_texts("UUAS of the chain", of_ratio(chain, total, seed=case.seed))]
        scores, losses = np.zeros((own.num_layers, 2)), np.zeros(own.num_layers)
        by_layer: list[list[int]] = []
        for layer in range(own.num_layers):
            learned = [sentences[n].read(own, layer) for n in choosing]
            wanted = [sentences[n].distances for n in choosing]
            probe, losses[layer] = fitted(learned, wanted, self, case.seed)
            said = [distances(sentence.read(own, layer) @ probe).numpy() for sentence in judged]
            right = [s.edges_found(found) for s, found in zip(judged, said, strict=True)]
            by_layer.append(right)
            interval = of_ratio(right, total, seed=case.seed)
            baseline = Baseline("chain", sum(chain) / max(sum(total), 1))
            findings.append(
                Finding.over_texts("UUAS", interval, layer, baseline=baseline, of_states=True)
            )
            by_rank = rank_correlation(judged, said)
            if not np.isnan(by_rank):
                findings.append(
                    Finding("rank correlation of distances", by_rank, layer, of_states=True)
                )
            scores[layer] = interval.value, by_rank
        # Chosen without the judging half: on what chose it, the best of many looks too good.
        best = int(losses.argmin())
        lead = of_difference((by_layer[best], total), (by_layer[0], total), seed=case.seed)
        over_chain = of_difference((by_layer[best], total), (chain, total), seed=case.seed)
        findings.append(Finding.over_texts("UUAS, best layer less the chain", over_chain))
        findings.append(Finding.over_texts("UUAS, best layer less the first", lead))
        return Found(findings, {"scores": scores, "chain": np.array(sum(chain) / sum(total))})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "the best layer is nearer to trees than the chain of neighbours is",
                "79.8 % to 48.9 % in layer 7 of BERT-base",
                stored.of_all("UUAS, best layer less the chain"),
                0.0,
                "alike",
            ),
            concluded(
                "the best layer is nearer to trees than what the blocks read",
                "26.8 % before the blocks of ELMo, 77.0 % behind the first",
                stored.of_all("UUAS, best layer less the first"),
                0.0,
                "alike",
            ),
        ]

    def _lacks_edges(self, case: Case) -> str | None:
        sentences = sentences_of(case.texts)
        if len(sentences) < 4:
            return "it needs four sentences of two words: two to learn from, two to judge"
        _, judging = halves(len(sentences), case.seed)
        if not any(sentences[n].edges for n in judging):
            return "in the sentences that judge no word depends on another: give more sentences"
        return None

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(stored.arrays["scores"][:, 0], marker="o", label="UUAS")
        axes.plot(stored.arrays["scores"][:, 1], marker="o", label="rank correlation of distances")
        axes.axhline(float(stored.arrays["chain"]), linestyle=":", label="UUAS of the chain")
        axes.set_xlabel("layer, 0 before the blocks")
        axes.legend()


Edge = tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """A sentence with its tree.

    Attributes:
        begin: where its words stand among all words that were read.
        distances: (W, W) in the tree.
        edges: of the tree, between words that are no punctuation.
        counted: which words are no punctuation.
    """

    begin: int
    distances: NDArray[np.float64]
    edges: frozenset[Edge]
    counted: NDArray[np.int64]

    @property
    def along(self) -> NDArray[np.float64]:
        """The distances of a chain."""
        place = np.arange(len(self.distances))
        return np.abs(place[:, None] - place).astype(np.float64)

    def read(self, own: WordStates, layer: int) -> Tensor:
        """The states of its words (W, D)."""
        of = slice(self.begin, self.begin + len(self.distances))
        return torch.from_numpy(np.array(own.states[layer, of]))

    def edges_found(self, said: NDArray[Any]) -> int:
        """How many edges the tree of the shortest distances (W, W) has right."""
        if not self.edges:
            return 0
        inside = np.asarray(said, np.float64)[np.ix_(self.counted, self.counted)]
        # A distance of nothing would be no edge at all.
        tree = minimum_spanning_tree(inside - inside.min() + 1.0).tocoo()
        found = {
            (int(min(a, b)), int(max(a, b)))
            for a, b in zip(self.counted[tree.row], self.counted[tree.col], strict=True)
        }
        return len(found & self.edges)


def sentences_of(texts: Sequence[ReadText]) -> list[Sentence]:
    """The trees of the texts, of those whose words were all read."""
    found: list[Sentence] = []
    begins = np.cumsum([0, *(len(text.words) for text in texts)])
    for begin, text in zip(begins, texts, strict=False):
        tree = text.source
        assert isinstance(tree, Tree)
        if len(text.words) == len(tree.words) > 1:
            found.append(sentence_of(tree, int(begin)))
    return found


def sentence_of(tree: Tree, begin: int = 0) -> Sentence:
    """A tree as distances and edges."""
    size = len(tree.words)
    graph = np.zeros((size, size))
    edges: set[Edge] = set()
    for word, head in enumerate(tree.heads):
        if head >= 0:
            graph[word, head] = 1
            if "PUNCT" not in (tree.tags[word], tree.tags[head]):
                edges.add((min(word, head), max(word, head)))
    distance = np.asarray(shortest_path(graph, directed=False, unweighted=True), np.float64)
    counted = np.array([n for n, tag in enumerate(tree.tags) if tag != "PUNCT"], np.int64)
    return Sentence(begin, distance, frozenset(edges), counted)


def distances(vectors: Tensor) -> Tensor:
    """Squared distances (W, W) between vectors (W, k)."""
    return (vectors[:, None] - vectors[None]).square().sum(-1)


def fitted(
    states: Sequence[Tensor],
    wanted: Sequence[NDArray[np.float64]],
    choice: StructuralProbe,
    seed: int,
) -> tuple[Tensor, float]:
    """The map (D, k) of these states to these distances. The absolute error, summed over the pairs
    of a sentence and over the square of its length, is made small; the best on a held-out tenth,
    with its error there."""
    targets = [torch.from_numpy(each).float() for each in wanted]
    generator = torch.Generator().manual_seed(key(seed, "structural probe") >> 1)
    width = states[0].shape[1]
    probe = nn.Parameter((torch.rand(width, choice.rank, generator=generator) - 0.5) / 10)
    update = torch.optim.Adam([probe], choice.rate)
    slower = torch.optim.lr_scheduler.ReduceLROnPlateau(update, factor=0.1, patience=0)
    order = torch.randperm(len(states), generator=generator).tolist()
    held, learned = order[: max(1, len(order) // 10)], order[max(1, len(order) // 10) :]

    def loss(number: int) -> Tensor:
        error = (distances(states[number] @ probe) - targets[number]).abs()
        return error.sum() / len(error) ** 2

    best, since, found = float("inf"), 0, probe.detach().clone()
    for _ in range(choice.epochs):
        for start in range(0, len(learned), AT_ONCE):
            some = learned[start : start + AT_ONCE]
            update.zero_grad()
            (torch.stack([loss(number) for number in some]).mean()).backward()
            update.step()
        with torch.no_grad():
            now = float(torch.stack([loss(number) for number in held]).mean())
        slower.step(now)
        since = 0 if now < best - 1e-4 else since + 1
        if now < best:
            best, found = now, probe.detach().clone()
        if since >= PATIENCE:
            break
    return found, best


def rank_correlation(sentences: Sequence[Sentence], said: Sequence[NDArray[Any]]) -> float:
    """Spearman's of the distances of each word, in the mean over words, sentences of a length, and
    lengths of 5 to 50 words."""
    by_length: dict[int, list[float]] = {}
    for sentence, found in zip(sentences, said, strict=True):
        size = len(sentence.distances)
        if 5 <= size <= 50:
            by_word: list[Any] = [
                stats.spearmanr(a, b).statistic  # type: ignore[attr-defined]
                for a, b in zip(found, sentence.distances, strict=True)
            ]
            by_length.setdefault(size, []).append(float(np.nanmean(by_word)))
    return float(np.mean([np.mean(of) for of in by_length.values()])) if by_length else float("nan")
