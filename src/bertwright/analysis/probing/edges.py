"""Which layers tell what about words and about pairs of words (Tenney et al. 2019a, b)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.texts import ReadText, lacks_halves, lacks_trees
from bertwright.analysis.word_states import SITES, WordStates, word_states
from bertwright.randomness import key
from bertwright.significance import Interval, halves, of_difference, of_ratio, of_sums
from bertwright.statistics import estimate
from bertwright.tasks.formats.treebank import Tree

Floats = NDArray[np.float64]

AT_ONCE = 64
"""Edges of a step."""

GAIN = "gain over the embeddings"

LATER = ("relation", "part of speech")
"""What becomes known later, and what earlier."""


class EdgeProbe(Analysis):
    """A weighted sum of the layers 0 to l is learned, with a small network on top, for each l, that
    names the part of speech of a word, and what a word is to the one it depends on. Half of the
    sentences are learned from, the other half judges. By which layer the score rises says where a
    thing becomes known (the expected layer), the weights of the sum over all layers say where it is
    read (their centre). Spans are single words. ``seeds`` probes of each are learned, and intervals
    are over sentences, of what these have right in their mean."""

    kind: Literal["edge-probe"] = "edge-probe"
    width: int = Field(default=64, ge=1)
    epochs: int = Field(default=15, ge=1)
    rate: float = Field(default=2e-3, gt=0)
    seeds: int = Field(default=3, ge=2)
    number = "B21"
    group = "probing"
    question = "In which layers do parts of speech and relations become known?"
    source = "Tenney et al. 2019"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        lacking = lacks_trees(case.texts) or lacks_halves(case.texts)
        return lacking or lacks_relations(case) or super().lacks(case)

    def run(self, case: Case) -> Found:
        own = word_states(case)
        findings: list[Finding] = []
        arrays: dict[str, Floats] = {}
        sums: dict[str, Floats] = {}
        for name, edges in edges_of(case, own).items():
            scores, weights, sums[name] = self._told(case, own, name, edges)
            arrays |= {f"{name} scores": scores, f"{name} weights": weights}
            first, last, total = sums[name][:, [0, -2, -1]].T
            findings += [
                self._over_sentences(f"{name}: {metric}", interval)
                for metric, interval in (
                    ("expected layer", of_sums(expected_layer, sums[name], seed=case.seed)[0]),
                    ("score of all layers", of_ratio(last, total, seed=case.seed)),
                    (GAIN, of_difference((last, total), (first, total), seed=case.seed)),
                )
            ]
            uneven = (weights * np.log(weights * own.num_layers)).sum(1)
            findings += [
                over_seeds(f"{name}: centre of the weights", weights @ np.arange(own.num_layers)),
                over_seeds(f"{name}: weights from even ones, nats", uneven),
            ]
            findings += [
                Finding(
                    f"{name}: score of the layers up to this", float(value), layer, of_states=True
                )
                for layer, value in enumerate(scores.mean(0))
            ]
        later, _ = of_sums(expected_layer, *(sums[name] for name in LATER), seed=case.seed)
        findings.append(self._over_sentences(f"expected layer, {' less '.join(LATER)}", later))
        return Found(findings, arrays)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "parts of speech become known in lower layers than relations do",
                "3.39 to 5.69 in BERT-large",
                stored.of_all(f"expected layer, {' less '.join(LATER)}"),
                0.0,
                "the same layer",
            ),
            concluded(
                "the blocks add to what the embeddings tell of relations",
                "for every task",
                stored.of_all(f"relation: {GAIN}"),
                0.0,
                "nothing",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        rising, read = figure.subplots(1, 2)
        for name in ("part of speech", "relation"):
            scores, weights = (
                stored.arrays[f"{name} {which}"].mean(0) for which in ("scores", "weights")
            )
            rising.plot(scores, marker="o", label=name)
            read.plot(weights, marker="o", label=name)
        rising.set_ylabel("accuracy of the layers up to this")
        read.set_ylabel("weight in the sum of all layers")
        for axes in (rising, read):
            axes.set_xlabel("layer, 0 before the blocks")
        rising.legend()

    def _told(
        self, case: Case, own: WordStates, name: str, edges: "Edges"
    ) -> tuple[Floats, Floats, Floats]:
        """The accuracy of the probes of the layers up to each, and the weights of the sums, (seeds,
        layers) each; and of every sentence that judges what is right by layer in the mean over
        probes, then how much is asked, (N, layers + 1)."""
        choosing, judging = halves(len(case.texts), case.seed)
        parts = tuple(edges.of(np.isin(own.text, half)) for half in (choosing, judging))
        text = own.text[parts[1].words[:, 0].numpy()]
        right = np.zeros((self.seeds, own.num_layers, len(text)))
        weights = np.zeros((self.seeds, own.num_layers))
        for seed in range(self.seeds):
            for layer in range(own.num_layers):
                drawn = key(case.seed, f"{name} {seed}") >> 1
                right[seed, layer], mix = self._learned(own, layer + 1, parts, drawn)
                # What is left of the weights is that of the last probe, which sees all layers.
                weights[seed, : len(mix)] = mix
        counted = (*right.mean(0), np.ones(len(text)))
        by_text = [np.bincount(text, each, len(case.texts))[judging] for each in counted]
        return right.mean(2), weights, np.array(by_text, np.float64).T

    def _over_sentences(self, metric: str, found: Interval) -> Finding:
        return replace(Finding.over_texts(metric, found), note=f"mean of {self.seeds} probes")

    def _learned(
        self, own: WordStates, layers: int, parts: Sequence["Edges"], seed: int
    ) -> tuple[NDArray[np.bool_], Floats]:
        """What a probe of the first layers has right, (N,), and the weights of its sum."""
        learned, judged = parts
        generator = torch.Generator().manual_seed(seed)
        probe = Probe(own, layers, learned.words.shape[1], learned.labels, self.width, generator)
        update = torch.optim.Adam(probe.parameters(), self.rate)
        slower = torch.optim.lr_scheduler.LinearLR(update, 1.0, 0.0, self.epochs)
        for _ in range(self.epochs):
            order = torch.randperm(len(learned.words), generator=generator)
            for some in order.split(AT_ONCE):
                logits = probe(learned.words[some])
                update.zero_grad()
                nn.functional.cross_entropy(logits, learned.target[some]).backward()
                update.step()
            slower.step()
        with torch.no_grad():
            said = torch.cat([probe(some).argmax(1) for some in judged.words.split(1024)])
            return (said == judged.target).numpy(), probe.mix.softmax(0).double().numpy()


@dataclass(frozen=True)
class Edges:
    """Words or pairs of words, and what is to be said of them.

    Attributes:
        words: (N, 1 or 2) where they stand among all words.
        target: (N,).
        labels: how many there are.
    """

    words: Tensor
    target: Tensor
    labels: int

    def of(self, inside: NDArray[np.bool_]) -> "Edges":
        """Those whose first word is inside (W,)."""
        kept = torch.from_numpy(inside)[self.words[:, 0]]
        return Edges(self.words[kept], self.target[kept], self.labels)


class Probe(nn.Module):
    """The weighted sum of layers, a projection of each word, and a layer of tanh on top."""

    def __init__(
        self,
        own: WordStates,
        layers: int,
        words: int,
        labels: int,
        width: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        states = torch.from_numpy(np.array(own.states[:layers]))
        # Layers of one size, so that their weights say what is read and not how large it is.
        self.states = states / states.square().mean((1, 2), keepdim=True).sqrt()
        self.mix = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))
        self.project = nn.ModuleList(nn.Linear(own.states.shape[-1], width) for _ in range(words))
        self.inner = nn.Linear(words * width, width)
        self.output = nn.Linear(width, labels)
        for linear in (*self.project, self.inner, self.output):
            assert isinstance(linear, nn.Linear)
            nn.init.kaiming_uniform_(linear.weight, 5**0.5, generator=generator)
            nn.init.zeros_(linear.bias)

    def forward(self, words: Tensor) -> Tensor:
        """words (N, 1 or 2) to logits (N, labels)."""
        shares = self.scale * self.mix.softmax(0)
        mixed = torch.einsum("l,lnkd->nkd", shares, self.states[:, words])
        found = [project(mixed[:, n]) for n, project in enumerate(self.project)]
        return self.output(torch.tanh(self.inner(torch.cat(found, 1))))


def expected_layer(sums: Floats) -> Floats:
    """Where on average something becomes known, by what is right of layers 0 and on and how much is
    asked, (..., layers + 1); 0 where the blocks add nothing to what the embeddings tell."""
    gains = np.diff(sums[..., :-1] / np.maximum(sums[..., -1:], 1))
    total = gains.sum(-1)
    found = gains @ np.arange(1, gains.shape[-1] + 1)
    return np.divide(found, total, out=np.zeros_like(total), where=total > 0)


def edges_of(case: Case, own: WordStates) -> dict[str, Edges]:
    """Parts of speech of words, and relations of words to their heads."""
    begins = np.searchsorted(own.text, np.arange(len(case.texts)))
    singles: list[tuple[int, str]] = []
    pairs: list[tuple[tuple[int, int], str]] = []
    for begin, text in zip(map(int, begins), case.texts, strict=True):
        assert isinstance(text.source, Tree)
        tags = text.source.tags[: len(text.words)]
        singles += [(begin + word, tag) for word, tag in enumerate(tags)]
        pairs += [((begin + word, begin + head), how) for word, head, how in related(text)]
    return {
        "part of speech": _numbered([(word,) for word, _ in singles], [t for _, t in singles]),
        "relation": _numbered([both for both, _ in pairs], [t for _, t in pairs]),
    }


def lacks_relations(case: Case) -> str | None:
    """Why relations cannot be learned from half of the sentences and judged on the other, in
    words."""
    for half in halves(len(case.texts), case.seed):
        if not any(related(case.texts[n]) for n in half):
            return "in half of the sentences no word depends on another: give more sentences"
    return None


def related(text: ReadText) -> list[tuple[int, int, str]]:
    """The words that depend on others, on which, and how, but for punctuation."""
    tree, size = text.source, len(text.words)
    assert isinstance(tree, Tree)
    every = zip(range(size), tree.heads[:size], tree.relations[:size], strict=True)
    return [own for own in every if 0 <= own[1] < size and own[2] != "punct"]


def over_seeds(metric: str, values: Sequence[float] | NDArray[np.float64]) -> Finding:
    """The mean of several probes, with the interval of other probes."""
    found = estimate([float(value) for value in values])
    note = f"over {found.count} probes"
    return Finding(metric, found.mean, interval=(found.low, found.high), note=note)


def _numbered(words: Sequence[tuple[int, ...]], labels: Sequence[str]) -> Edges:
    names, numbers = np.unique(np.array(labels), return_inverse=True)
    return Edges(torch.tensor(words), torch.from_numpy(numbers), len(names))
