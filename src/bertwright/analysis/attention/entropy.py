"""Entropy of attention (Clark et al. 2019)."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.attention.attention_mass import layer_halves
from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves, values_by_head
from bertwright.analysis.core.result import AnalysisResult, Findings

METRICS = ("entropy", "entropy of the first position")

SMOOTHING = 1e-4
"""Fraction of uniform attention added to the weights, as in the released code."""


class AttentionEntropy(StreamingAnalysis):
    """The entropy of attention in nats: averaged over positions, and at the first position alone.

    The baseline is a head with uniform attention over its allowed positions (section 3.3).
    """

    kind: Literal["attention-entropy"] = "attention-entropy"
    survey_id = "B4"
    title = "How broadly do heads attend?"
    source = "Clark et al. 2019"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "heads of the first half of the layers attend more broadly than those of the "
            "second half",
            "some heads of the lowest layers of BERT-base are nearly uniform",
            "entropy, first half minus second half",
        ),
    )
    plots = (LayerCurves("nats", values_by_head(*METRICS), has_embeddings=False),)

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        entropies: list[Tensor] = []
        uniform_entropies: list[Tensor] = []
        for layer in range(inputs.model.num_layers):
            uniform = batch.uniform_attention(layer)
            for values, weights in (
                (entropies, batch.attention(layer)),
                (uniform_entropies, uniform),
            ):
                by_position = entropy((1 - SMOOTHING) * weights + SMOOTHING * uniform)
                mean = by_position.sum(-1) / batch.lengths[:, None]
                values.append(torch.stack((mean, by_position[..., 0]), -1).double())
            uniform_entropies[-1] = uniform_entropies[-1].expand_as(entropies[-1])
        by_name = {"entropies": entropies, "uniform": uniform_entropies}
        return {name: torch.stack(layers, 1).cpu().numpy() for name, layers in by_name.items()}

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        entropies, uniform = np.array(measured["entropies"]), np.array(measured["uniform"]).mean(0)
        findings = Findings(inputs.seed)
        findings.add_by_head(METRICS, entropies, ("uniform", uniform))
        halves = layer_halves(entropies.shape[1]).values()
        first, second = (entropies[:, half, :, 0].mean((1, 2)) for half in halves)
        findings.add_ratio("entropy, first half minus second half", first - second)
        return AnalysisResult(findings, {"entropies": entropies.mean(0), "uniform": uniform})


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy over the last axis, in nats."""
    return -torch.special.xlogy(weights, weights).sum(-1)
