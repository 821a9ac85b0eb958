"""Which heads attend alike (Clark et al. 2019, section 6)."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.attention.entropy import entropy
from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.result import AnalysisFinding, AnalysisResult, StoredResult
from bertwright.core.significance import NUM_PERMUTATIONS, FloatArray


def _distance_within_layers(result: StoredResult) -> Mapping[str, Any]:
    other = result.overall_finding("distance between layers")["value"]
    return {
        **result.overall_finding("distance within layers"),
        "baseline": {"name": "different layers", "value": other},
        "num_units": result.num_texts,
    }


class HeadClusters(StreamingAnalysis):
    """The Jensen-Shannon distance between all pairs of heads over the first ``max_texts`` texts.

    The plot arranges the heads by multidimensional scaling of these distances.
    """

    kind: Literal["head-clusters"] = "head-clusters"
    max_texts: int = Field(default=20, ge=1)
    survey_id = "B5"
    title = "Which heads attend alike, and do they belong to one layer?"
    source = "Clark et al. 2019"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "heads of one layer are more alike than heads of different layers",
            "near each other in BERT-base",
            _distance_within_layers,
            None,
            direction="below",
            p_value="p_value",
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if min(inputs.model.num_layers, inputs.model.num_heads) < 2:
            return "it needs two layers of two heads or more"
        return super().not_applicable(inputs)

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        layers = [batch.attention(layer) for layer in range(inputs.model.num_layers)]
        divergences: list[FloatArray | None] = [None] * len(batch.texts)
        for index, (number, text) in enumerate(zip(batch.text_indices, batch.texts, strict=True)):
            if number < self.max_texts:
                tokens = slice(len(text))
                weights = torch.cat([layer[index, :, tokens, tokens] for layer in layers])
                divergences[index] = jensen_shannon_divergences(weights).double().cpu().numpy()
        return {"divergences": divergences}

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        from sklearn.manifold import MDS

        num_positions = sum(map(len, inputs.texts[: self.max_texts]))
        distance = np.sum(measured["divergences"][: self.max_texts], axis=0) / num_positions
        layer = np.repeat(np.arange(inputs.model.num_layers), inputs.model.num_heads)
        first, second = np.triu_indices(len(layer), 1)
        same = layer[first] == layer[second]
        pairs = distance[first, second]
        within, between = pairs[same], pairs[~same]
        p_value = layer_permutation_p_value(distance, layer, inputs.seed)
        findings = [
            AnalysisFinding("distance within layers", float(within.mean()), p_value=p_value),
            AnalysisFinding("distance between layers", float(between.mean())),
        ]
        scaling: Any = MDS(
            2, metric="precomputed", n_init=4, init="random", random_state=inputs.seed
        )
        points = np.asarray(scaling.fit_transform(distance), np.float64)
        return AnalysisResult(findings, {"distances": distance, "points": points, "layer": layer})

    def plot(self, result: StoredResult, figure: Figure) -> None:
        axes = figure.subplots()
        points, layer = result.arrays["points"], result.arrays["layer"]
        drawn = axes.scatter(points[:, 0], points[:, 1], c=layer + 1)
        figure.colorbar(drawn, ax=axes, label="layer")
        axes.set_xticks([])
        axes.set_yticks([])


def layer_permutation_p_value(
    distances: NDArray[Any], layer_of_head: NDArray[Any], seed: int
) -> float:
    """Return the fraction of random layer assignments with heads as close together, or closer.

    Heads are permuted instead of pairs: pairs that share a head are not independent (Mantel 1967).
    """
    first, second = np.triu_indices(len(layer_of_head), 1)
    pairs, generator = distances[first, second], np.random.default_rng(seed)

    def within(layers: NDArray[Any]) -> float:
        return float(pairs[layers[first] == layers[second]].mean())

    actual = within(layer_of_head)
    as_close = [
        within(generator.permutation(layer_of_head)) <= actual for _ in range(NUM_PERMUTATIONS)
    ]
    return (1 + sum(as_close)) / (1 + NUM_PERMUTATIONS)


def jensen_shannon_divergences(weights: Tensor) -> Tensor:
    """Return divergences in nats between heads (H, L, L), summed over positions: (H, H)."""
    entropies = entropy(weights).sum(-1)
    result = weights.new_zeros(len(weights), len(weights))
    for first, head in enumerate(weights):
        mixed = entropy((weights[first + 1 :] + head) / 2).sum(-1)
        result[first, first + 1 :] = mixed - (entropies[first] + entropies[first + 1 :]) / 2
    return (result + result.T).clamp(min=0)
