"""Entropy of attention (Clark et al. 2019)."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.attention.attention_mass import layer_halves
from bertwright.analysis.core.activations import ActivationBatch
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves, values_by_head
from bertwright.analysis.core.result import AnalysisResult, Findings

SMOOTHING = 1e-4
"""Fraction of uniform attention mixed into the weights, as in the released code."""


class AttentionEntropy(StreamingAnalysis):
    """The entropy of attention in nats, averaged over positions, and of the first position alone.

    The baseline is a head with uniform attention over its allowed positions (section 3.3).
    """

    kind: Literal["attention-entropy"] = "attention-entropy"
    survey_id = "B4"
    group = "attention"
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
    plots = (
        LayerCurves(
            "nats", values_by_head("entropy", "entropy of the first position"), has_embeddings=False
        ),
    )

    def consumer(self, inputs: AnalysisInput) -> "AttentionEntropyConsumer":
        return AttentionEntropyConsumer(inputs)


METRICS = ("entropy", "entropy of the first position")


class AttentionEntropyConsumer:
    """The consumer of entropies: (N, layers, heads, 2), of the model and of uniform attention."""

    taps = AttentionEntropy.taps

    def __init__(self, inputs: AnalysisInput) -> None:
        model = inputs.model
        shape = (len(inputs.texts), model.num_layers, model.num_heads, len(METRICS))
        self.entropies, self.uniform_entropies = np.zeros(shape), np.zeros(shape)
        self.seed = inputs.seed

    def update(self, batch: ActivationBatch) -> None:
        """Store the entropies of the texts of a batch."""
        for layer in range(self.entropies.shape[1]):
            uniform = batch.uniform_attention(layer)
            for target, weights in (
                (self.entropies, batch.attention(layer)),
                (self.uniform_entropies, uniform),
            ):
                entropies = entropy((1 - SMOOTHING) * weights + SMOOTHING * uniform)
                mean = entropies.sum(-1) / batch.lengths[:, None]
                target[batch.text_indices, layer] = torch.stack((mean, entropies[..., 0]), -1).cpu()

    def result(self) -> AnalysisResult:
        """Return means over texts."""
        uniform = self.uniform_entropies.mean(0)
        findings = Findings(self.seed)
        findings.add_by_head(METRICS, self.entropies, ("uniform", uniform))
        halves = layer_halves(self.entropies.shape[1]).values()
        first, second = (self.entropies[:, half, :, 0].mean((1, 2)) for half in halves)
        findings.add_ratio("entropy, first half minus second half", first - second)
        return AnalysisResult(findings, {"entropies": self.entropies.mean(0), "uniform": uniform})


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy over the last axis, in nats."""
    return -torch.special.xlogy(weights, weights).sum(-1)
