"""Effective attention: the part of the weights that reaches the output (Brunner et al. 2020).

A head outputs A T, where T (S, D) holds the values after the head's part of the output projection.
The rank of T is at most the head size, so in longer texts A can change within the left null space
of T without changing the output. Effective attention is A without its part in that null space.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.attention.attention_mass import ATTENDED_TOKENS, attention_mass
from bertwright.analysis.core.activations import ActivationBatch
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.core.significance import bootstrap_mean_difference
from bertwright.modules.attention.attention import AttentionConfig

LENGTH_BINS = (16, 32, 48, 64, 96, 128, 256, 512)
"""Upper limits of the length of texts that are averaged."""

CORRELATION_DROP = "correlation, short minus long texts"


class EffectiveAttention(StreamingAnalysis):
    """The correlation of raw and effective attention by text length, and where the latter goes.

    ``constrained`` also keeps row sums, so that attention stays a distribution (section 3.2).
    """

    kind: Literal["effective-attention"] = "effective-attention"
    constrained: bool = False
    survey_id = "B10"
    group = "identifiability"
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
            lambda r: {"mean of texts": r.arrays["correlations"].mean(0)},
            has_embeddings=False,
        ),
        LayerCurves(
            "fraction of attention",
            lambda r: {
                f"{target}, {name}": r.arrays[name][..., n].mean(1)
                for n, target in enumerate(ATTENDED_TOKENS[:3])
                for name in ("raw", "effective")
            },
            has_embeddings=False,
        ),
    )

    def consumer(self, inputs: AnalysisInput) -> "EffectiveAttentionConsumer":
        return EffectiveAttentionConsumer(inputs, self.constrained)


class EffectiveAttentionConsumer:
    """The consumer of correlations (N, layers, heads), attention mass and null space size."""

    taps = EffectiveAttention.taps

    def __init__(self, inputs: AnalysisInput, constrained: bool) -> None:
        self.model, self.seed, self.constrained = inputs.model, inputs.seed, constrained
        shape = (len(inputs.texts), inputs.model.num_layers, inputs.model.num_heads)
        self.correlations, self.null_space_size = np.zeros(shape), np.zeros(shape)
        self.raw, self.effective = (np.zeros((*shape, len(ATTENDED_TOKENS))) for _ in range(2))
        self.lengths = np.zeros(len(inputs.texts))
        self.head_size = head_output_factors(inputs.model, 0).shape[-1]

    def update(self, batch: ActivationBatch) -> None:
        """Split the attention of a batch, text by text."""
        categories = [batch.category_mask(c) for c in ("opening", "separator", "punctuation")]
        columns = torch.stack(categories, -1).double()
        for layer in range(self.correlations.shape[1]):
            factors = head_output_factors(self.model, layer)
            weights, values = batch.attention(layer), batch.value(layer, "attention.value")
            uniform = batch.uniform_attention(layer)
            for index, number in enumerate(batch.text_indices):
                size = len(batch.texts[index])
                self.lengths[number] = size
                raw = weights[index, :, :size, :size].double()
                allowed = uniform[index, :, :size, :size] > 0
                transformed = values[index, :, :size].double() @ factors
                effective, rank = effective_attention(raw, transformed, allowed, self.constrained)
                self.null_space_size[number, layer] = (size - rank).cpu()
                correlation = weight_correlation(raw, effective, allowed)
                self.correlations[number, layer] = correlation.cpu()
                targets = columns[index : index + 1, :size], raw.new_tensor([float(size)])
                self.raw[number, layer] = attention_mass(raw[None], *targets)[0]
                self.effective[number, layer] = attention_mass(effective[None], *targets)[0]

    def result(self) -> AnalysisResult:
        """Return correlations by length and attention mass by head."""
        findings = Findings(self.seed)
        lower = 0
        for upper in LENGTH_BINS:
            inside = (self.lengths > lower) & (self.lengths <= upper)
            if inside.any():
                mean = self.correlations[inside].mean((1, 2))
                name = f"correlation, texts of {lower + 1} to {upper} tokens"
                findings.add_ratio(name, mean)
            lower = upper
        means = self.correlations.mean((1, 2))
        short, long = (
            means[self.lengths <= self.head_size],
            means[self.lengths > 2 * self.head_size],
        )
        if len(short) and len(long):
            difference = bootstrap_mean_difference(short, long, seed=self.seed)
            findings.add_interval(CORRELATION_DROP, difference)
        raw = self.raw.mean(0)
        metrics = [f"effective, {target}" for target in ATTENDED_TOKENS]
        findings.add_by_head(metrics, self.effective, ("raw", raw))
        arrays = {
            "lengths": self.lengths,
            "correlations": self.correlations,
            "null_space_size": self.null_space_size,
            "raw": raw,
            "effective": self.effective.mean(0),
        }
        return AnalysisResult(findings, arrays)


def missing_head_outputs(model: AnalysedModel) -> str | None:
    """Return why head outputs are no sum over weighted values, or None."""
    encoder = model.text_model.model.recipe.encoder
    gated = isinstance(encoder.mixer, AttentionConfig) and encoder.mixer.gate is not None
    if gated or encoder.norm.placement == "sub":
        return "the heads' outputs pass through a gate or a norm before the output projection"
    return None


@torch.no_grad()
def head_output_factors(model: AnalysedModel, layer: int) -> Tensor:
    """Return a square factor of the output projection of every head, (H, d, d).

    It has the left singular vectors and singular values of the head's projection (d, D), so norms
    and column spaces of the transformed values are the same.
    """
    output = model.encoder.blocks[layer].get_submodule("sublayers.attention.output")
    weight = output.get_parameter("weight").double()
    by_head = weight.T.unflatten(0, (model.num_heads, -1))
    return torch.linalg.qr(by_head.transpose(-1, -2)).R.transpose(-1, -2)


def effective_attention(
    weights: Tensor, values: Tensor, allowed: Tensor, constrained: bool = False
) -> tuple[Tensor, Tensor]:
    """Return effective attention (H, S, S) and the largest rank of the values (H,).

    ``values`` (H, S, d) are the transformed values. Every query keeps to its allowed keys,
    ``allowed`` (1 or H, S, S). With ``constrained`` rows keep their sums.
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
    """Return Pearson's correlation of the allowed weights (H, S, S), (H,)."""
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
