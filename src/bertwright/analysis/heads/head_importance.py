"""Head importance by gate gradients (Michel et al. 2019, section 4).

The test is how the loss rises when the least important heads are pruned.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.interventions import CONTEXT_TAP, gate_heads, open_gates
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.prediction_probe import (
    PredictionProbe,
    PredictionScores,
    split_probes,
)
from bertwright.analysis.core.requirements import missing_halves, missing_predictions
from bertwright.analysis.core.result import AnalysisFinding, AnalysisResult, Findings
from bertwright.analysis.heads.head_ablation import losses_by_head
from bertwright.core.rng import stream_key, uniform
from bertwright.core.significance import FloatArray
from bertwright.models.text_batches import TextBatch

Importances = FloatArray

LOSS_INCREASE = "loss increase with a fifth pruned"
RANDOM_MINUS_IMPORTANCE = "loss with half pruned, random order minus importance"


class HeadImportance(Analysis):
    """The loss when heads are pruned a few at a time, least important first.

    This importance is compared with the loss increase without each single head (the oracle) and
    with random orders. Importances come from half of the texts, losses from the other half. The
    absolute gradient is that of a text (equation 2); the published code has that of each position.

    Attributes:
        step_fraction: Fraction of heads pruned at a time.
        num_random_orders: Number of random orders.
    """

    kind: Literal["head-importance"] = "head-importance"
    step_fraction: float = Field(default=0.1, gt=0, le=1)
    num_random_orders: int = Field(default=5, ge=1)
    survey_id = "B17"
    title = "How many heads can be pruned, and does the gate gradient tell which?"
    source = "Michel et al. 2019"
    taps = (f"blocks.*.{CONTEXT_TAP}",)
    requires = (missing_halves("choose by"), missing_predictions)
    claims = (
        Claim(
            "a fifth of the heads can be pruned for less than a tenth of a nat",
            "20 % (translation) to 40 % (BERT) without a visible loss",
            LOSS_INCREASE,
            0.1,
            "a tenth of a nat",
            "below",
        ),
        Claim(
            "with half of the heads pruned, pruning by importance costs less than in random order",
            "the gate gradient approximates the oracle",
            RANDOM_MINUS_IMPORTANCE,
        ),
    )
    plots = (
        LayerCurves(
            "loss, nats",
            lambda r: {
                "by importance": r.arrays["importance"],
                "oracle": r.arrays["oracle"],
                "random": r.arrays["random"].T,
            },
            xlabel="fraction of heads pruned",
            x="fractions",
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        model = inputs.model
        train, test = split_probes(inputs)
        importances = normalise_by_layer(head_importances(train))
        oracle = losses_by_head(train).sum(-1)
        indices = np.arange(importances.size)
        orders = [
            uniform(stream_key(inputs.seed, "order of heads"), number, indices).reshape(
                importances.shape
            )
            for number in range(self.num_random_orders)
        ]
        steps = np.arange(0, 1, self.step_fraction)
        fractions = [*steps[steps < 1 - 1e-9], 1.0]
        curves = {
            "importance": self._pruning_curve(test, model, importances, fractions),
            "oracle": self._pruning_curve(test, model, oracle, fractions),
        }
        random = [self._pruning_curve(test, model, order, fractions) for order in orders]
        findings = Findings(inputs.seed)
        findings += [
            AnalysisFinding("normalised importance", float(value), *at)
            for at, value in np.ndenumerate(importances)
        ]
        for name, curve in curves.items():
            findings += [
                AnalysisFinding(f"loss with {fraction:.0%} pruned by {name}", scores.mean_loss)
                for fraction, scores in zip(fractions, curve, strict=True)
            ]
        full, fifth = curves["importance"][0], curves["importance"][_nearest_index(fractions, 0.2)]
        findings.add_difference(LOSS_INCREASE, fifth.loss_ratio, full.loss_ratio)
        half = _nearest_index(fractions, 0.5)
        random_loss = np.mean([curve[half].loss for curve in random], axis=0)
        scores = curves["importance"][half]
        findings.add_difference(
            RANDOM_MINUS_IMPORTANCE, (random_loss, scores.num_targets), scores.loss_ratio
        )
        arrays = {
            "fractions": np.array(fractions),
            "importances": importances,
            **{name: np.array([c.mean_loss for c in curve]) for name, curve in curves.items()},
            "random": np.array([[c.mean_loss for c in curve] for curve in random]),
        }
        return AnalysisResult(findings, arrays)

    def _pruning_curve(
        self,
        probe: PredictionProbe,
        model: AnalysedModel,
        order: Importances,
        fractions: Sequence[float],
    ) -> list[PredictionScores]:
        """Return the scores with heads pruned in this order."""
        rank = np.argsort(np.argsort(order, axis=None)).reshape(order.shape)
        scores: list[PredictionScores] = []
        for fraction in fractions:
            kept = torch.from_numpy(rank >= round(fraction * order.size))
            gates = open_gates(model) * kept.to(model.text_model.device)
            with gate_heads(model, gates):
                scores.append(probe.evaluate())
        return scores


def head_importances(probe: PredictionProbe) -> Importances:
    """Return the mean absolute gradient of the loss with respect to the gate of each head.

    The result is (layers, H), averaged over texts: equation 2, with a separate gate for every text.
    """
    model, batch_gates = probe.model, list[Tensor]()
    total = torch.zeros_like(open_gates(model))

    def within(batch: TextBatch) -> AbstractContextManager[None]:
        gates = open_gates(model)[:, None].repeat(1, len(batch.indices), 1).requires_grad_()
        batch_gates[:] = [gates]
        return gate_heads(model, gates)

    with torch.enable_grad():
        for _, loss, _, _ in probe.scored_batches(within):
            (gradient,) = torch.autograd.grad(loss.sum(), batch_gates)
            total += gradient.abs().sum(1)
    return (total / len(probe.texts)).double().cpu().numpy()


def normalise_by_layer(importances: Importances) -> Importances:
    """Divide importances (layers, H) by their norm within each layer."""
    return importances / np.maximum(np.linalg.norm(importances, axis=1, keepdims=True), 1e-30)


def _nearest_index(fractions: Sequence[float], fraction: float) -> int:
    return int(np.argmin(np.abs(np.asarray(fractions) - fraction)))
