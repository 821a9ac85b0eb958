"""Learned gates of attention heads (Louizos et al. 2018; Voita et al. 2019)."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import chain, count, islice
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.interventions import CONTEXT_TAP, gate_heads, open_gates
from bertwright.analysis.core.plots import HeatMap
from bertwright.analysis.core.prediction_probe import (
    PredictionProbe,
    PredictionScores,
    split_probes,
)
from bertwright.analysis.core.requirements import missing_halves, missing_predictions
from bertwright.analysis.core.result import (
    AnalysisResult,
    Count,
    Findings,
    StoredResult,
)
from bertwright.analysis.heads.head_importance import head_importances, normalise_by_layer
from bertwright.core.rng import stream_key, uniform
from bertwright.core.significance import FloatArray
from bertwright.models.text_batches import TextBatch
from bertwright.modules.hard_concrete import HardConcrete

GATE_DISTRIBUTION = HardConcrete(temperature=0.33, low=-0.1, high=1.1)

INITIAL_LOGIT = 2.0
"""Initial logit of every gate."""


PUBLISHED_PRUNING = "38 of 48 heads of an encoder for 0.15 BLEU"


def _at_lowest_penalty(metric: str) -> Callable[[StoredResult], Mapping[str, Any] | None]:
    """Return a function that gets the finding; None if it is about zero closed heads."""

    def finding(result: StoredResult) -> Mapping[str, Any] | None:
        penalty = f"penalty {result.arrays['penalties'].min():g}"
        closed = result.overall_finding(f"fraction of heads closed, {penalty}")
        claimed = result.overall_finding(f"{metric}, {penalty}")
        return claimed if claimed is closed or closed["value"] else None

    return finding


class LearnedGates(Analysis):
    """Heads pruned together by stochastic gates that are trained on a fixed model.

    Every head has a gate, sampled at each step. The training loss is the prediction loss plus
    ``penalty`` nats times the fraction of open heads, so a head closes if it is worth less than its
    part of the penalty. Gates are trained on one half of the texts and tested, open or closed, on
    the other half. The comparison is as many heads selected by gate gradients.
    """

    kind: Literal["learned-gates"] = "learned-gates"
    penalties: tuple[float, ...] = Field(default=(0.3, 1.0), min_length=1)
    steps: int = Field(default=40, ge=1)
    learning_rate: float = Field(default=0.2, gt=0)
    survey_id = "B18"
    title = "Which heads can be pruned together, according to learned gates?"
    source = "Voita et al. 2019"
    taps = (f"blocks.*.{CONTEXT_TAP}",)
    requires = (missing_halves(), missing_predictions)
    claims = (
        Claim(
            "at the lowest penalty the gates close some heads",
            PUBLISHED_PRUNING,
            _at_lowest_penalty("fraction of heads closed"),
            baseline_name="none",
        ),
        Claim(
            "together, the closed heads cost less than a tenth of a nat",
            PUBLISHED_PRUNING,
            _at_lowest_penalty("loss increase"),
            0.1,
            "a tenth of a nat",
            "below",
        ),
        Claim(
            "the closed heads cost less than as many heads chosen by importance alone",
            "gates learn how heads work together",
            _at_lowest_penalty("importance minus gates"),
        ),
    )
    plots = (
        HeatMap(
            "probability that the gate is open",
            lambda r: np.concatenate(list(r.arrays["open_probabilities"]), axis=1),
            xlabel="head, penalty by penalty",
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        train, test = split_probes(inputs)
        by_gradient, full = normalise_by_layer(head_importances(train)), test.evaluate()
        rank = np.argsort(np.argsort(-by_gradient, axis=None)).reshape(by_gradient.shape)
        findings = Findings(inputs.seed)
        probabilities: list[FloatArray] = []
        for penalty in self.penalties:
            logits = self.train_gates(train, penalty)
            probabilities.append(GATE_DISTRIBUTION.open_probability(logits).double().cpu().numpy())
            is_open = GATE_DISTRIBUTION.gates(logits) > 0.5
            by_importance = _evaluate_gates(test, torch.from_numpy(rank < int(is_open.sum())))
            by_gates = _evaluate_gates(test, is_open)
            suffix = f"penalty {penalty:g}"
            closed = Count(int((~is_open).sum()), is_open.numel(), "heads")
            findings.add_value(
                f"fraction of heads closed, {suffix}",
                closed.number / closed.total,
                num_units=closed.total,
                count=closed,
            )
            findings += [
                first.loss_minus(second, f"{name}, {suffix}", seed=inputs.seed)
                for name, first, second in (
                    ("loss increase", by_gates, full),
                    ("loss increase by importance", by_importance, full),
                    ("importance minus gates", by_importance, by_gates),
                )
            ]
        arrays = {
            "penalties": np.array(self.penalties),
            "open_probabilities": np.array(probabilities),
        }
        return AnalysisResult(findings, arrays)

    def train_gates(self, probe: PredictionProbe, penalty: float) -> Tensor:
        """Train the gates and return their logits (layers, H)."""
        logits = torch.full_like(open_gates(probe.model), INITIAL_LOGIT).requires_grad_()
        optimizer = torch.optim.Adam([logits], self.learning_rate)
        indices = np.arange(logits.numel()).reshape(logits.shape)
        key = stream_key(probe.seed, "gates")
        noise = (torch.from_numpy(uniform(key, step, indices)).to(logits) for step in count())

        def within(_: TextBatch) -> AbstractContextManager[None]:
            return gate_heads(probe.model, GATE_DISTRIBUTION.gates(logits, next(noise)))

        with torch.enable_grad():
            batches = chain.from_iterable(probe.scored_batches(within) for _ in count())
            for _, loss, _, num_targets in islice(batches, self.steps):
                penalised = (
                    loss.sum() / num_targets.sum()
                    + penalty * GATE_DISTRIBUTION.open_probability(logits).mean()
                )
                (logits.grad,) = torch.autograd.grad(penalised, [logits])
                optimizer.step()
        return logits.detach()


def _evaluate_gates(probe: PredictionProbe, gates: Tensor) -> PredictionScores:
    with gate_heads(probe.model, gates.to(open_gates(probe.model))):
        return probe.evaluate()
