"""The cost of removing one head (Michel et al. 2019, section 3.2)."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.interventions import CONTEXT_TAP, gate_heads, open_gates
from bertwright.analysis.core.plots import HeatMap
from bertwright.analysis.core.prediction_probe import missing_predictions, prediction_probe
from bertwright.analysis.core.result import AnalysisResult, Findings, StoredResult

LOSS_INCREASE = "loss increase without the head"


def _fraction_needed(result: StoredResult) -> Mapping[str, Any]:
    is_worse = [f["adjusted_p_value"] < 0.05 and f["value"] > 0 for f in result.findings]
    return result.computed_finding(float(np.mean(is_worse)))


def _num_harmful(result: StoredResult) -> Mapping[str, Any]:
    is_better = [f["adjusted_p_value"] < 0.05 and f["value"] < 0 for f in result.findings]
    return result.computed_finding(float(sum(is_better)))


class HeadAblation(Analysis):
    """The loss increase without each head, tested text by text and adjusted for all heads.

    The output of the head is replaced by zeros.
    """

    kind: Literal["single-heads"] = "single-heads"
    survey_id = "B15"
    group = "heads"
    title = "What does removing one head cost?"
    source = "Michel et al. 2019"
    taps = (f"blocks.*.{CONTEXT_TAP}",)
    claims = (
        Claim(
            "most heads can be removed, one at a time, without a significant loss",
            "all but 8 of 96 heads of a translation encoder",
            _fraction_needed,
            0.5,
            "half of them",
            "below",
        ),
        Claim(
            "removing some heads helps",
            "about half of those that matter",
            _num_harmful,
            baseline_name="none",
        ),
    )
    plots = (
        HeatMap(
            "loss increase without a head, nats", lambda r: r.values_by_head(LOSS_INCREASE), None
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        return super().not_applicable(inputs) or missing_predictions(inputs.model)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        probe, gates = prediction_probe(inputs), open_gates(inputs.model)
        full = probe.evaluate()
        losses = np.zeros((*gates.shape, len(inputs.texts)))
        for layer, head in np.ndindex(*gates.shape):
            gates[layer, head] = 0
            with gate_heads(inputs.model, gates):
                losses[layer, head] = probe.evaluate().loss
            gates[layer, head] = 1
        findings = Findings(inputs.seed)
        findings.add_loss_increases(
            LOSS_INCREASE,
            losses.reshape(-1, len(inputs.texts)),
            full.loss,
            full.num_targets,
            np.ndindex(*gates.shape),
        )
        return AnalysisResult(
            findings, {"losses": losses, "full": full.loss, "num_targets": full.num_targets}
        )
