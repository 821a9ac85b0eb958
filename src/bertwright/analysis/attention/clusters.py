"""Which heads look alike (Clark et al. 2019, section 6)."""

from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.attention.entropy import entropy
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.listening import Heard
from bertwright.significance import PERMUTATIONS


class HeadClusters(Listening):
    """The Jensen-Shannon distance of each two heads, in the mean over the places of the first
    ``most`` texts, drawn in the plane such that distances are kept as well as can be."""

    kind: Literal["head-clusters"] = "head-clusters"
    most: int = Field(default=20, ge=1)
    number = "B5"
    group = "attention"
    question = "Which heads look alike, and are they those of one layer?"
    source = "Clark et al. 2019"
    sites = ("blocks.*.attention.weights",)

    def lacks(self, case: Case) -> str | None:
        if min(case.subject.num_layers, case.subject.num_heads) < 2:
            return "it needs two layers of two heads or more"
        return super().lacks(case)

    def listener(self, case: Case) -> "ClustersHeard":
        return ClustersHeard(case, self.most)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        within, between = (stored.of_all(name) for name in ("within layers", "between layers"))
        return [
            Conclusion(
                "heads of one layer are more alike than heads of different layers",
                "near each other in BERT-base",
                within["value"],
                None,
                between["value"],
                "of different layers",
                "below",
                within["chance"],
                stored.num_texts,
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        points, layer = stored.arrays["points"], stored.arrays["layer"]
        drawn = axes.scatter(points[:, 0], points[:, 1], c=layer + 1)
        figure.colorbar(drawn, ax=axes, label="layer")
        axes.set_xticks([])
        axes.set_yticks([])


class ClustersHeard:
    """Sums of divergences (heads, heads) over places."""

    sites = HeadClusters.sites

    def __init__(self, case: Case, most: int) -> None:
        self.layers, self.heads = case.subject.num_layers, case.subject.num_heads
        self.most, self.seed = most, case.seed
        number = self.layers * self.heads
        self.sums, self.places = np.zeros((number, number)), 0

    def hear(self, heard: Heard) -> None:
        """Compare the heads in the first texts."""
        chosen = [row for row, number in enumerate(heard.numbers) if number < self.most]
        if not chosen:
            return
        weights = torch.cat([heard.attention(n)[chosen] for n in range(self.layers)], 1)
        for row, of_text in zip(chosen, weights, strict=True):
            size = len(heard.texts[row])
            self.sums += divergences(of_text[:, :size, :size]).double().cpu().numpy()
            self.places += size

    def found(self) -> Found:
        """Distances, within layers and between them, and a map."""
        from sklearn.manifold import MDS

        distance = self.sums / self.places
        layer = np.repeat(np.arange(self.layers), self.heads)
        first, second = np.triu_indices(len(layer), 1)
        same = layer[first] == layer[second]
        pairs = distance[first, second]
        within, between = pairs[same], pairs[~same]
        chance = chance_of_layers(distance, layer, self.seed)
        findings = [Finding("within layers", float(within.mean()), chance=chance)]
        findings += [Finding("between layers", float(between.mean()))]
        scaling: Any = MDS(2, metric="precomputed", n_init=4, init="random", random_state=self.seed)
        points = np.asarray(scaling.fit_transform(distance), np.float64)
        return Found(findings, {"distances": distance, "points": points, "layer": layer})


def chance_of_layers(distance: NDArray[Any], layer: NDArray[Any], seed: int) -> float:
    """How often heads dealt to layers at random are as near to those of their layer, or nearer.
    Heads are dealt, not pairs of them: pairs that share a head are alike (Mantel 1967)."""
    first, second = np.triu_indices(len(layer), 1)
    pairs, generator = distance[first, second], np.random.default_rng(seed)

    def within(dealt: NDArray[Any]) -> float:
        return float(pairs[dealt[first] == dealt[second]].mean())

    own = within(layer)
    dealt = [within(generator.permutation(layer)) <= own for _ in range(PERMUTATIONS)]
    return (1 + sum(dealt)) / (1 + PERMUTATIONS)


def divergences(weights: Tensor) -> Tensor:
    """Jensen-Shannon divergences in nats between heads (H, L, L), summed over places: (H, H)."""
    own = entropy(weights).sum(-1)
    found = weights.new_zeros(len(weights), len(weights))
    for first, each in enumerate(weights):
        mixed = entropy((weights[first + 1 :] + each) / 2).sum(-1)
        found[first, first + 1 :] = mixed - (own[first] + own[first + 1 :]) / 2
    return (found + found.T).clamp(min=0)
