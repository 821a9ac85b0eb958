"""Attention weighted by the norm of transformed values (Kobayashi et al. 2020).

A head outputs the sum over positions j of A_ij f(x_j). Its contribution is the norm of A_ij f(x_j),
which the weight A_ij alone does not determine.
"""

from typing import Literal

import numpy as np
from torch import Tensor

from bertwright.analysis.attention.attention_mass import (
    ATTENDED_TOKENS,
    attention_mass,
    layer_halves,
    mass_by_layer,
)
from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.identifiability.effective_attention import (
    head_output_factors,
    missing_head_outputs,
)
from bertwright.core.significance import FloatArray, spearman

SEPARATOR_WEIGHT_MINUS_NORM = "separator, second half, by weight minus by norm"


class AttentionNorms(StreamingAnalysis):
    """Where attention goes when weights are multiplied by the norms of the values.

    Also Spearman's correlation between the mean weight and the norm of a position, by head.
    Weighted norms sum to 1 for every position; the published code averages them as they are.
    """

    kind: Literal["attention-norms"] = "attention-norms"
    survey_id = "B14"
    title = "Where does attention go when weights are multiplied by the norm of the values?"
    source = "Kobayashi et al. 2020"
    taps = ("blocks.*.attention.weights", "blocks.*.attention.value")
    requires = (lambda inputs: missing_head_outputs(inputs.model),)
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
        LayerCurves("fraction of attention", mass_by_layer("weight", "norm"), has_embeddings=False),
        HeatMap("correlation of weight and norm", lambda r: r.arrays["correlations"].mean(0), None),
    )

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        columns = batch.category_columns("opening", "separator", "punctuation")
        by_weight: list[FloatArray] = []
        by_norm: list[FloatArray] = []
        correlations: list[list[list[float]]] = []
        for layer in range(inputs.model.num_layers):
            factors = head_output_factors(inputs.model, layer)
            weights = batch.attention(layer)
            norms = (batch.value(layer, "attention.value").double() @ factors).norm(dim=-1)
            products = weights * norms[..., None, :].to(weights)
            products = products / products.sum(-1, keepdim=True).clamp(min=1e-30)
            by_weight.append(attention_mass(weights, columns, batch.lengths))
            by_norm.append(attention_mass(products, columns, batch.lengths))
            received, sizes = _for_ranks(weights.sum(2)), _for_ranks(norms)
            correlations.append(
                [
                    [
                        spearman(a[: len(text)], b[: len(text)])
                        for a, b in zip(received[index], sizes[index], strict=True)
                    ]
                    for index, text in enumerate(batch.texts)
                ]
            )
        return {
            "weight": np.stack(by_weight, 1),
            "norm": np.stack(by_norm, 1),
            "correlations": np.swapaxes(correlations, 0, 1),
        }

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        mass = {name: np.array(measured[name]) for name in ("weight", "norm")}
        correlations = np.array(measured["correlations"])
        arrays = {name: values.mean(0) for name, values in mass.items()}
        findings = Findings(inputs.seed)
        metrics = [f"by norm, {target}" for target in ATTENDED_TOKENS]
        findings.add_by_head(metrics, mass["norm"], ("by weight", arrays["weight"]))
        second = layer_halves(correlations.shape[1])["second half"]
        to_separator = (
            values[:, second, :, ATTENDED_TOKENS.index("separator")].mean((1, 2))
            for values in mass.values()
        )
        findings.add_difference(SEPARATOR_WEIGHT_MINUS_NORM, *to_separator)
        findings.add_ratio("correlation of weight and norm", correlations.mean((1, 2)))
        return AnalysisResult(findings, {**arrays, "correlations": correlations})


def _for_ranks(values: Tensor) -> FloatArray:
    """Return values (B, H, L) relative to the largest, rounded.

    Without positions in the embeddings, equal tokens of a text have equal values in the first
    layer, and their ranks must not depend on the rounding in a batch.
    """
    largest = values.amax(-1, keepdim=True).clamp(min=1e-30)
    return (values / largest).double().round(decimals=5).cpu().numpy()
