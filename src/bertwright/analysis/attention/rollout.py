"""Attention rollout: attention multiplied through all layers, with residual connections.

Abnar and Zuidema (2020).
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.core.activations import ActivationBatch
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings

TRACKED_POSITIONS = ("itself", "opening", "separator")


class AttentionRollout(StreamingAnalysis):
    """The product of (A + 1) / 2 over layers, where A is the mean over heads.

    The result is the fraction that goes to the position itself, the first one and separators.
    """

    kind: Literal["attention-rollout"] = "attention-rollout"
    survey_id = "B13"
    group = "attention"
    title = "Which inputs does attention rollout lead back to?"
    source = "Abnar and Zuidema 2020"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "from layer to layer, rollout leads back less to the position itself",
            "rollout spreads with depth",
            "itself, first layer minus last",
        ),
    )
    plots = (
        LayerCurves(
            "fraction of rollout",
            lambda r: dict(zip(TRACKED_POSITIONS, r.arrays["fractions"].T, strict=True)),
            has_embeddings=False,
        ),
        HeatMap(
            "rollout in the last layer, first text",
            lambda r: r.arrays["first_text"],
            (0, None),
            "input position",
            "position",
        ),
    )

    def consumer(self, inputs: AnalysisInput) -> "AttentionRolloutConsumer":
        return AttentionRolloutConsumer(inputs)


class AttentionRolloutConsumer:
    """The consumer of rollout fractions (N, layers, targets) and the rollout of the first text."""

    taps = AttentionRollout.taps

    def __init__(self, inputs: AnalysisInput) -> None:
        self.fractions = np.zeros(
            (len(inputs.texts), inputs.model.num_layers, len(TRACKED_POSITIONS))
        )
        self.first_text_rollout = np.zeros((1, 1))
        self.seed = inputs.seed

    def update(self, batch: ActivationBatch) -> None:
        """Compute the rollout of a batch."""
        num_layers = self.fractions.shape[1]
        steps = attention_rollout([batch.attention(layer).mean(1) for layer in range(num_layers)])
        categories = torch.stack(
            [batch.category_mask("opening"), batch.category_mask("separator")], -1
        )
        for layer, rolled in enumerate(steps):
            masked = rolled * batch.token_mask[..., None]
            itself = torch.diagonal(masked, dim1=-2, dim2=-1).sum(-1, keepdim=True)
            marked = (masked.sum(1)[:, None] @ categories.to(masked))[:, 0]
            fractions = torch.cat((itself, marked), -1) / batch.lengths[:, None]
            self.fractions[batch.text_indices, layer] = fractions.double().cpu().numpy()
        if 0 in batch.text_indices:
            index = batch.text_indices.index(0)
            size = len(batch.texts[index])
            self.first_text_rollout = steps[-1][index, :size, :size].double().cpu().numpy()

    def result(self) -> AnalysisResult:
        """Return means over texts."""
        findings = Findings(self.seed)
        for layer in range(self.fractions.shape[1]):
            for number, name in enumerate(TRACKED_POSITIONS):
                findings.add_ratio(
                    name,
                    self.fractions[:, layer, number],
                    layer=layer,
                    baseline=BaselineValue(
                        "first layer", float(self.fractions[:, 0, number].mean())
                    ),
                )
        findings.add_difference(
            "itself, first layer minus last", self.fractions[:, 0, 0], self.fractions[:, -1, 0]
        )
        return AnalysisResult(
            findings, {"fractions": self.fractions.mean(0), "first_text": self.first_text_rollout}
        )


def attention_rollout(attention_by_layer: list[Tensor]) -> list[Tensor]:
    """Return the rollout after every layer from attention averaged over heads, (B, L, L).

    Rows of padding, whose attention is 0, keep half of themselves.
    """
    rollouts: list[Tensor] = []
    for attention in attention_by_layer:
        mixed = (attention + torch.eye(attention.shape[-1]).to(attention)) / 2
        rollouts.append(mixed if not rollouts else mixed @ rollouts[-1])
    return rollouts
