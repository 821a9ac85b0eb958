"""Whether attention heads could use fixed patterns (Raganato, Scherrer and Tiedemann 2020)."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
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
    PredictionProbe,
    PredictionScores,
    missing_plain_attention,
    missing_predictions,
    prediction_probe,
)
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    difference_finding,
)
from bertwright.analysis.core.texts import AnalysedText, missing_halves
from bertwright.core.significance import split_halves

FIXED_PATTERNS = ("itself", "previous", "next", "left", "right", "first", "last")
"""The position itself, the previous and the next one, all before it and all after it with weights
that fall with distance, the first position of the text, the last."""

WEIGHTS_TAP = "attention.weights"

ALL_BUT_ONE = "all heads but one per layer"
LAYER_FIXED = "loss increase with fixed heads"
ALL_BUT_ONE_FIXED = f"{ALL_BUT_ONE} fixed, loss increase"
ALL_BUT_ONE_ABLATED = f"{ALL_BUT_ONE}, ablated minus fixed"


class FixedHeads(Analysis):
    """The loss with attention heads that use fixed patterns.

    Every head gets the pattern that overlaps most with its attention on half of the texts. On the
    other half: the loss with all heads of a layer fixed, and with all of them ablated; and with all
    heads of all layers fixed but one per layer, the one least like its pattern. Nothing is
    retrained.
    """

    kind: Literal["fixed-heads"] = "fixed-heads"
    survey_id = "B9"
    group = "heads"
    title = "Could heads use fixed attention patterns?"
    source = "Raganato, Scherrer and Tiedemann 2020"
    taps = (f"blocks.*.{WEIGHTS_TAP}",)
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

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        reason = missing_halves(inputs.texts, "choose by") or super().not_applicable(inputs)
        return reason or missing_predictions(inputs.model) or missing_plain_attention(inputs.model)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        model, (train, test) = inputs.model, split_halves(len(inputs.texts), inputs.seed)
        overlap = pattern_overlaps(model, [inputs.texts[n] for n in train])
        best = overlap.argmax(-1)
        probe = prediction_probe(replace(inputs, texts=[inputs.texts[n] for n in test]))
        full = probe.evaluate()
        findings = [_loss_difference("loss of the unchanged model", full, full, None, inputs.seed)]
        for layer in range(model.num_layers):
            with fix_heads(probe, best, [(layer, head) for head in range(model.num_heads)]):
                fixed = probe.evaluate()
            gates = open_gates(model)
            gates[layer] = 0
            with gate_heads(model, gates):
                ablated = probe.evaluate()
            findings += [
                _loss_difference(LAYER_FIXED, fixed, full, layer, inputs.seed),
                _loss_difference("ablated minus fixed", ablated, fixed, layer, inputs.seed),
            ]
        kept = overlap.max(-1).argmin(-1)
        others = [at for at in np.ndindex(best.shape) if at[1] != kept[at[0]]]
        with fix_heads(probe, best, others):
            fixed = probe.evaluate()
        gates = torch.zeros_like(open_gates(model))
        gates[torch.arange(len(kept)), torch.from_numpy(kept)] = 1
        with gate_heads(model, gates):
            ablated = probe.evaluate()
        findings += [
            _loss_difference(ALL_BUT_ONE_FIXED, fixed, full, None, inputs.seed),
            _loss_difference(ALL_BUT_ONE_ABLATED, ablated, fixed, None, inputs.seed),
        ]
        return AnalysisResult(findings, {"overlap": overlap, "pattern": best})


def pattern_overlaps(model: AnalysedModel, texts: Sequence[AnalysedText]) -> NDArray[np.float64]:
    """Return the mean overlap of the attention of each head with each pattern, (layers, H, P)."""
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
    """Return the patterns (B, H or 1, L, L) over allowed keys that are tokens, (B, L).

    A query without an allowed key in its pattern attends to itself.
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
    probe: PredictionProbe, pattern_of_head: NDArray[np.int64], heads: list[tuple[int, int]]
) -> ExitStack:
    """Fix these heads to their patterns while the context is open."""
    model, stack = probe.model, ExitStack()
    for layer in {layer for layer, _ in heads}:
        of_layer = [head for at, head in heads if at == layer]
        change = _pattern_replacement(
            [int(pattern_of_head[layer, head]) for head in of_layer], of_layer
        )
        stack.enter_context(model.encoder.replace(f"blocks.{layer}.{WEIGHTS_TAP}", change))
    return stack


def _pattern_replacement(pattern_ids: list[int], heads: list[int]) -> Callable[[Tensor], Tensor]:
    def change(weights: Tensor) -> Tensor:
        allowed = weights.amax(1, keepdim=True) > 0
        patterns = fixed_patterns(allowed, allowed.any(2)[:, 0])
        changed = weights.clone()
        for number, head in zip(pattern_ids, heads, strict=True):
            changed[:, head] = patterns[number][:, 0].to(weights)
        return changed

    return change


def _loss_difference(
    metric: str, first: PredictionScores, second: PredictionScores, layer: int | None, seed: int
) -> AnalysisFinding:
    baseline = BaselineValue("loss compared with", second.mean_loss)
    return difference_finding(
        metric, first.loss_ratio, second.loss_ratio, seed=seed, layer=layer, baseline=baseline
    )
