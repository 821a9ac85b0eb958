"""Attention weighted by the norm of the transformed values (Kobayashi et al. 2020).

A head outputs the sum over positions j of A_ij f(x_j). What counts is the norm of A_ij f(x_j), not
the weight alone.
"""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from bertwright.analysis.attention.attention_mass import (
    ATTENDED_TOKENS,
    attention_mass,
    layer_halves,
)
from bertwright.analysis.core.activations import ActivationBatch
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.identifiability.effective_attention import (
    head_output_factors,
    missing_head_outputs,
)

SEPARATOR_WEIGHT_MINUS_NORM = "separator, second half, by weight minus by norm"


class AttentionNorms(StreamingAnalysis):
    """Where attention goes when weights are multiplied by the norm of the values.

    Also Spearman's correlation of the mean weight and the norm of a position, by head.
    """

    kind: Literal["attention-norms"] = "attention-norms"
    survey_id = "B14"
    group = "identifiability"
    title = "Where does attention go when weights are multiplied by the norm of the values?"
    source = "Kobayashi et al. 2020"
    taps = ("blocks.*.attention.weights", "blocks.*.attention.value")
    claims = (
        Claim(
            "weighted by norm, separators get less attention in the second half of the layers",
            "the peak of BERT-base at separators disappears",
            SEPARATOR_WEIGHT_MINUS_NORM,
        ),
        Claim(
            "heads attend to positions with short value vectors",
            "weights and norms are negatively correlated in BERT-base",
            "correlation of weight and norm",
            0.0,
            "none",
            "below",
        ),
    )
    plots = (
        LayerCurves(
            "fraction of attention",
            lambda r: {
                f"{target}, {name}": r.arrays[name][..., n].mean(1)
                for n, target in enumerate(ATTENDED_TOKENS[:3])
                for name in ("weight", "norm")
            },
            has_embeddings=False,
        ),
        HeatMap("correlation of weight and norm", lambda r: r.arrays["correlations"].mean(0), None),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        return super().not_applicable(inputs) or missing_head_outputs(inputs.model)

    def consumer(self, inputs: AnalysisInput) -> "AttentionNormsConsumer":
        return AttentionNormsConsumer(inputs)


class AttentionNormsConsumer:
    """The consumer of attention mass by weight and by norm, (N, layers, heads, targets)."""

    taps = AttentionNorms.taps

    def __init__(self, inputs: AnalysisInput) -> None:
        self.model, self.seed = inputs.model, inputs.seed
        shape = (len(inputs.texts), inputs.model.num_layers, inputs.model.num_heads)
        self.by_weight, self.by_norm = (np.zeros((*shape, len(ATTENDED_TOKENS))) for _ in range(2))
        self.correlations = np.zeros(shape)

    def update(self, batch: ActivationBatch) -> None:
        """Compare weights with norms in a batch."""
        categories = [batch.category_mask(c) for c in ("opening", "separator", "punctuation")]
        columns, lengths = torch.stack(categories, -1), batch.lengths
        for layer in range(self.correlations.shape[1]):
            factors = head_output_factors(self.model, layer)
            weights = batch.attention(layer)
            norms = (batch.value(layer, "attention.value").double() @ factors).norm(dim=-1)
            by_norm = weights * norms[..., None, :].to(weights)
            by_norm = by_norm / by_norm.sum(-1, keepdim=True).clamp(min=1e-30)
            self.by_weight[batch.text_indices, layer] = attention_mass(weights, columns, lengths)
            self.by_norm[batch.text_indices, layer] = attention_mass(by_norm, columns, lengths)
            received = weights.sum(2)
            for index, number in enumerate(batch.text_indices):
                tokens = slice(len(batch.texts[index]))
                self.correlations[number, layer] = [
                    _spearman(a, b)
                    for a, b in zip(
                        received[index, :, tokens].cpu().numpy(),
                        norms[index, :, tokens].cpu().numpy(),
                        strict=True,
                    )
                ]

    def result(self) -> AnalysisResult:
        """Return means over texts."""
        weight = self.by_weight.mean(0)
        findings = Findings(self.seed)
        metrics = [f"by norm, {target}" for target in ATTENDED_TOKENS]
        findings.add_by_head(metrics, self.by_norm, ("by weight", weight))
        second = layer_halves(self.by_norm.shape[1])["second half"]
        by_weight, by_norm = (
            mass[:, second, :, ATTENDED_TOKENS.index("separator")].mean((1, 2))
            for mass in (self.by_weight, self.by_norm)
        )
        findings.add_difference(SEPARATOR_WEIGHT_MINUS_NORM, by_weight, by_norm)
        findings.add_ratio("correlation of weight and norm", self.correlations.mean((1, 2)))
        arrays = {"weight": weight, "norm": self.by_norm.mean(0), "correlations": self.correlations}
        return AnalysisResult(findings, arrays)


def _spearman(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return Spearman's correlation; 0 if one side is constant."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    result: Any = stats.spearmanr(first, second)
    return float(result.statistic)
