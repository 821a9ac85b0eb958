"""Whether attention heads could use fixed patterns (Raganato, Scherrer and Tiedemann 2020)."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.interventions import gate_heads, open_gates
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.prediction_probe import (
    prediction_probe,
)
from bertwright.analysis.core.requirements import (
    missing_halves,
    missing_plain_attention,
    missing_predictions,
)
from bertwright.analysis.core.result import (
    AnalysisResult,
)
from bertwright.analysis.core.texts import AnalysedText
from bertwright.core.significance import FloatArray, split_halves

FIXED_PATTERNS = ("itself", "previous", "next", "left", "right", "first", "last")
"""The patterns: the position itself, the previous and the next one, all before it and all after it
with weights that fall with distance, the first position of the text, the last."""

WEIGHTS_TAP = "attention.weights"

ALL_BUT_ONE = "all heads but one per layer"
LAYER_FIXED = "loss increase with fixed heads"
ALL_BUT_ONE_FIXED = f"{ALL_BUT_ONE} fixed, loss increase"
ALL_BUT_ONE_ABLATED = f"{ALL_BUT_ONE}, ablated minus fixed"


class FixedHeads(Analysis):
    """The loss when attention heads use fixed patterns.

    Every head gets the pattern that overlaps most with its attention on half of the texts. The
    other half gives the loss with all heads of a layer fixed, and with all of them ablated. It also
    gives the loss with all heads of the model fixed except one per layer: the one least like its
    pattern. Nothing is retrained.
    """

    kind: Literal["fixed-heads"] = "fixed-heads"
    survey_id = "B9"
    title = "Could heads use fixed attention patterns?"
    source = "Raganato, Scherrer and Tiedemann 2020"
    taps = (f"blocks.*.{WEIGHTS_TAP}",)
    requires = (missing_halves("choose by"), missing_predictions, missing_plain_attention)
    claims = (
        Claim(
            "heads with fixed patterns are more useful than no heads",
            "translation is as good when trained with seven of eight heads fixed",
            ALL_BUT_ONE_ABLATED,
        ),
        Claim(
            "fixing all heads but one per layer costs hardly anything",
            "translation is as good when trained with seven of eight heads fixed",
            ALL_BUT_ONE_FIXED,
            0.1,
            "a tenth of a nat",
            "below",
        ),
    )
    plots = (
        HeatMap("overlap with its pattern", lambda r: r.arrays["overlap"].max(-1)),
        LayerCurves(
            "loss increase, nats",
            lambda r: {LAYER_FIXED: r.values_by_layer(LAYER_FIXED)},
            has_embeddings=False,
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        model, (train, test) = inputs.model, split_halves(len(inputs.texts), inputs.seed)
        overlap = pattern_overlaps(model, [inputs.texts[n] for n in train])
        best = overlap.argmax(-1)
        probe = prediction_probe(replace(inputs, texts=[inputs.texts[n] for n in test]))
        full = probe.evaluate()
        findings = [full.loss_minus(full, "loss of the unchanged model", seed=inputs.seed)]
        for layer in range(model.num_layers):
            of_layer = np.broadcast_to(np.arange(len(best))[:, None] == layer, best.shape)
            with fix_heads(model, best, of_layer):
                fixed = probe.evaluate()
            gates = open_gates(model)
            gates[layer] = 0
            with gate_heads(model, gates):
                ablated = probe.evaluate()
            findings += [
                fixed.loss_minus(full, LAYER_FIXED, seed=inputs.seed, layer=layer),
                ablated.loss_minus(fixed, "ablated minus fixed", seed=inputs.seed, layer=layer),
            ]
        kept = overlap.max(-1).argmin(-1)
        others = np.arange(model.num_heads) != kept[:, None]
        with fix_heads(model, best, others):
            fixed = probe.evaluate()
        with gate_heads(model, torch.from_numpy(~others).to(open_gates(model))):
            ablated = probe.evaluate()
        findings += [
            fixed.loss_minus(full, ALL_BUT_ONE_FIXED, seed=inputs.seed),
            ablated.loss_minus(fixed, ALL_BUT_ONE_ABLATED, seed=inputs.seed),
        ]
        return AnalysisResult(findings, {"overlap": overlap, "pattern": best})


def pattern_overlaps(model: AnalysedModel, texts: Sequence[AnalysedText]) -> FloatArray:
    """Return the mean overlap between each head's attention and each pattern, (layers, H, P)."""
    sums = np.zeros((model.num_layers, model.num_heads, len(FIXED_PATTERNS)))
    num_positions = 0.0
    for batch in activation_batches(model, texts, FixedHeads.taps):
        for layer in range(model.num_layers):
            weights = batch.attention(layer)
            patterns = fixed_patterns(batch.uniform_attention(layer) > 0, batch.token_mask)
            for number, pattern in enumerate(patterns):
                shared = torch.minimum(weights, pattern.to(weights)).sum(-1)
                shared = shared * batch.token_mask[:, None]
                sums[layer, :, number] += shared.sum((0, 2)).double().cpu().numpy()
        num_positions += float(batch.lengths.sum())
    return sums / num_positions


def fixed_patterns(allowed: Tensor, token_mask: Tensor) -> list[Tensor]:
    """Return the patterns (B, H or 1, L, L), limited to allowed keys in ``token_mask`` (B, L).

    A query whose pattern has no allowed key attends to itself.
    """
    length = allowed.shape[-1]
    positions = torch.arange(length, device=allowed.device)
    distance = positions[None] - positions[:, None]
    size = token_mask.sum(1)[:, None, None]
    last = token_mask.sum(1) - 1
    shapes = {
        "itself": (distance == 0).double()[None],
        "previous": (distance == -1).double()[None],
        "next": (distance == 1).double()[None],
        "left": ((positions + 1).double() ** 3 * (distance < 0))[None],
        "right": ((size - positions).clamp(min=0).double() ** 3 * (distance > 0)),
        "first": (positions == 0).double().expand(1, length, length),
        "last": (positions[None] == last[:, None]).double()[:, None].expand(-1, length, -1),
    }
    patterns: list[Tensor] = []
    for name in FIXED_PATTERNS:
        weights = shapes[name][:, None] * (allowed & token_mask[:, None, None])
        sums = weights.sum(-1, keepdim=True)
        itself = (distance == 0).double()
        patterns.append(torch.where(sums > 0, weights / sums.clamp(min=1e-12), itself))
    return patterns


def fix_heads(
    model: AnalysedModel, pattern_of_head: NDArray[np.int64], is_fixed: NDArray[np.bool_]
) -> ExitStack:
    """Fix the heads in ``is_fixed`` (layers, H) to their patterns within the context."""
    stack = ExitStack()
    for layer in np.flatnonzero(is_fixed.any(1)):
        heads = np.flatnonzero(is_fixed[layer])
        change = partial(_use_patterns, heads.tolist(), pattern_of_head[layer, heads].tolist())
        stack.enter_context(model.encoder.replace(f"blocks.{layer}.{WEIGHTS_TAP}", change))
    return stack


def _use_patterns(heads: Sequence[int], pattern_ids: Sequence[int], weights: Tensor) -> Tensor:
    allowed = weights.amax(1, keepdim=True) > 0
    patterns = fixed_patterns(allowed, allowed.any(2)[:, 0])
    changed = weights.clone()
    for head, number in zip(heads, pattern_ids, strict=True):
        changed[:, head] = patterns[number][:, 0].to(weights)
    return changed
