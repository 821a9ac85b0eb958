"""Attention rollout: attention multiplied through all layers, with residual connections.

Abnar and Zuidema (2020).
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings

TRACKED_POSITIONS = ("itself", "opening", "separator")


class AttentionRollout(StreamingAnalysis):
    """The product of (A + 1) / 2 over layers, where A is the mean over heads.

    Reported is the fraction that goes to the position itself, the first position and separators.
    """

    kind: Literal["attention-rollout"] = "attention-rollout"
    survey_id = "B13"
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

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        layers = range(inputs.model.num_layers)
        steps = attention_rollout([batch.attention(layer).mean(1) for layer in layers])
        categories = batch.category_columns("opening", "separator")
        fractions: list[Tensor] = []
        for rolled in steps:
            masked = rolled * batch.token_mask[..., None]
            itself = torch.diagonal(masked, dim1=-2, dim2=-1).sum(-1, keepdim=True)
            marked = (masked.sum(1)[:, None] @ categories.to(masked))[:, 0]
            fractions.append(torch.cat((itself, marked), -1) / batch.lengths[:, None])
        first_text = [
            rolled[: len(text), : len(text)].double().cpu().numpy() if number == 0 else None
            for number, text, rolled in zip(batch.text_indices, batch.texts, steps[-1], strict=True)
        ]
        by_layer = torch.stack(fractions, 1).double().cpu().numpy()
        return {"fractions": by_layer, "first_text": first_text}

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        fractions = np.array(measured["fractions"])
        findings = Findings(inputs.seed)
        for layer in range(fractions.shape[1]):
            for number, name in enumerate(TRACKED_POSITIONS):
                baseline = BaselineValue("first layer", float(fractions[:, 0, number].mean()))
                findings.add_ratio(
                    name, fractions[:, layer, number], layer=layer, baseline=baseline
                )
        findings.add_difference(
            "itself, first layer minus last", fractions[:, 0, 0], fractions[:, -1, 0]
        )
        arrays = {"fractions": fractions.mean(0), "first_text": measured["first_text"][0]}
        return AnalysisResult(findings, arrays)


def attention_rollout(attention_by_layer: list[Tensor]) -> list[Tensor]:
    """Return the rollout after every layer from attention averaged over heads, (B, L, L).

    In rows of padding, where attention is 0, half of the previous value remains.
    """
    rollouts: list[Tensor] = []
    for attention in attention_by_layer:
        mixed = (attention + torch.eye(attention.shape[-1]).to(attention)) / 2
        rollouts.append(mixed if not rollouts else mixed @ rollouts[-1])
    return rollouts
