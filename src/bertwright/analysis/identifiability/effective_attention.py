"""Effective attention: the part of the weights that reaches the output (Brunner et al. 2020).

A head outputs A T, where T (S, D) are the values multiplied by the head's part of the output
projection. The rank of T is at most the head size, so in longer texts A can change within the left
null space of T without changing the output. Effective attention is A without its component in that
null space.
"""

from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.attention.attention_mass import (
    ATTENDED_TOKENS,
    attention_mass,
    mass_by_layer,
)
from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.core.significance import bootstrap_mean_difference
from bertwright.modules.attention.attention import AttentionConfig

LENGTH_BINS = (16, 32, 48, 64, 96, 128, 256, 512)
"""Upper limits of the text lengths that are averaged together."""

CORRELATION_DROP = "correlation, short minus long texts"


class EffectiveAttention(StreamingAnalysis):
    """The correlation between raw and effective attention by text length, and the latter's targets.

    ``constrained`` also preserves row sums, so that attention remains a distribution (section 3.2).
    """

    kind: Literal["effective-attention"] = "effective-attention"
    constrained: bool = False
    survey_id = "B10"
    title = "How much of attention could differ without changing the output?"
    source = "Brunner et al. 2020"
    taps = ("blocks.*.attention.weights", "blocks.*.attention.value")
    claims = (
        Claim(
            "raw and effective attention are less alike in longer texts",
            "falls beyond the head size of 64 of BERT-base",
            CORRELATION_DROP,
            is_optional=True,
        ),
    )
    plots = (
        LayerCurves(
            "correlation of raw and effective attention",
            lambda r: {"mean of texts": np.nanmean(r.arrays["correlations"], 0)},
            has_embeddings=False,
        ),
        LayerCurves(
            "fraction of attention", mass_by_layer("raw", "effective"), has_embeddings=False
        ),
    )

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        columns = batch.category_columns("opening", "separator", "punctuation")
        shape = (len(batch.texts), inputs.model.num_layers, inputs.model.num_heads)
        correlations, null_space_size = np.zeros(shape), np.zeros(shape)
        raw_mass, effective_mass = np.zeros((2, *shape, len(ATTENDED_TOKENS)))
        for layer in range(inputs.model.num_layers):
            factors = head_output_factors(inputs.model, layer)
            weights, values = batch.attention(layer), batch.value(layer, "attention.value")
            uniform = batch.uniform_attention(layer)
            for index, text in enumerate(batch.texts):
                size = len(text)
                raw = weights[index, :, :size, :size].double()
                allowed = uniform[index, :, :size, :size] > 0
                transformed = values[index, :, :size].double() @ factors
                effective, rank = effective_attention(raw, transformed, allowed, self.constrained)
                null_space_size[index, layer] = (size - rank).cpu()
                correlations[index, layer] = weight_correlation(raw, effective, allowed).cpu()
                targets = columns[index : index + 1, :size], raw.new_tensor([float(size)])
                raw_mass[index, layer] = attention_mass(raw[None], *targets)[0]
                effective_mass[index, layer] = attention_mass(effective[None], *targets)[0]
        return {
            "correlations": correlations,
            "null_space_size": null_space_size,
            "raw": raw_mass,
            "effective": effective_mass,
        }

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        arrays = {name: np.array(values) for name, values in measured.items()}
        lengths = np.array([float(len(text)) for text in inputs.texts])
        findings = Findings(inputs.seed)
        means = np.nanmean(arrays["correlations"], (1, 2))
        for lower, upper in pairwise((0, *LENGTH_BINS)):
            inside = (lengths > lower) & (lengths <= upper)
            if inside.any():
                name = f"correlation, texts of {lower + 1} to {upper} tokens"
                findings.add_ratio(name, means[inside])
        head_size = head_output_factors(inputs.model, 0).shape[-1]
        short, long = means[lengths <= head_size], means[lengths > 2 * head_size]
        if len(short) and len(long):
            difference = bootstrap_mean_difference(short, long, seed=inputs.seed)
            findings.add_interval(CORRELATION_DROP, difference)
        raw = arrays["raw"].mean(0)
        metrics = [f"effective, {target}" for target in ATTENDED_TOKENS]
        findings.add_by_head(metrics, arrays["effective"], ("raw", raw))
        means_by_head = {"raw": raw, "effective": arrays["effective"].mean(0)}
        return AnalysisResult(findings, {**arrays, **means_by_head, "lengths": lengths})


def missing_head_outputs(model: AnalysedModel) -> str | None:
    """Return why head outputs are not a sum of weighted values, or None if they are."""
    encoder = model.text_model.model.recipe.encoder
    gated = isinstance(encoder.mixer, AttentionConfig) and encoder.mixer.gate is not None
    if gated or encoder.norm.placement == "sub":
        return "the heads' outputs pass through a gate or a norm before the output projection"
    return None


@torch.no_grad()
def head_output_factors(model: AnalysedModel, layer: int) -> Tensor:
    """Return a square factor of the output projection of every head, (H, d, d).

    It has the left singular vectors and singular values of the head's projection (d, D), so the
    transformed values have the same norms and column spaces.
    """
    output = model.encoder.blocks[layer].get_submodule("sublayers.attention.output")
    weight = output.get_parameter("weight").double()
    by_head = weight.T.unflatten(0, (model.num_heads, -1))
    return torch.linalg.qr(by_head.transpose(-1, -2)).R.transpose(-1, -2)


def effective_attention(
    weights: Tensor, values: Tensor, allowed: Tensor, constrained: bool = False
) -> tuple[Tensor, Tensor]:
    """Return effective attention (H, S, S) and the largest rank of the values (H,).

    ``values`` (H, S, d) are the transformed values. Every query stays within its allowed keys,
    ``allowed`` (1 or H, S, S). With ``constrained``, rows keep their sums.
    """
    if constrained:
        values = torch.cat((values, torch.ones_like(values[..., :1])), -1)
    result, ranks = torch.zeros_like(weights), weights.new_zeros(len(weights), dtype=torch.int64)
    for head in range(len(weights)):
        allowed_keys = allowed[min(head, len(allowed) - 1)]
        for support in torch.unique(allowed_keys, dim=0):
            queries = (allowed_keys == support).all(-1)
            basis = _column_space(values[head][support])
            selected = weights[head][queries][:, support]
            result[head, queries.nonzero(), support.nonzero().T] = selected @ basis @ basis.T
            ranks[head] = max(int(ranks[head]), basis.shape[1])
    return result, ranks


def weight_correlation(first: Tensor, second: Tensor, allowed: Tensor) -> Tensor:
    """Return Pearson's correlation (H,) between the allowed weights (H, S, S).

    It is NaN for a head with constant weights.
    """
    correlations = [
        torch.corrcoef(torch.stack((a[mask], b[mask])))[0, 1]
        for a, b, mask in zip(first, second, allowed.expand_as(first), strict=True)
    ]
    return torch.stack(correlations)


def _column_space(matrix: Tensor) -> Tensor:
    """Return an orthonormal basis (S, r) of the columns of (S, d)."""
    left, sizes, _ = torch.linalg.svd(matrix, full_matrices=False)
    threshold = sizes.max() * max(matrix.shape) * torch.finfo(matrix.dtype).eps
    return left[:, sizes > threshold]
