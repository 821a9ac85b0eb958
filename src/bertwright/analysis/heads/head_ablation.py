"""The cost of removing one head (Michel et al. 2019, section 3.2)."""

from typing import Literal

import numpy as np

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim, significant_findings
from bertwright.analysis.core.interventions import CONTEXT_TAP, gate_heads, open_gates
from bertwright.analysis.core.plots import HeatMap
from bertwright.analysis.core.prediction_probe import PredictionProbe, prediction_probe
from bertwright.analysis.core.requirements import missing_predictions
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.core.significance import FloatArray

LOSS_INCREASE = "loss increase without the head"


class HeadAblation(Analysis):
    """The loss increase without each head, tested over texts and adjusted for all heads.

    The output of the head is replaced by zeros.
    """

    kind: Literal["single-heads"] = "single-heads"
    survey_id = "B15"
    title = "What does removing one head cost?"
    source = "Michel et al. 2019"
    taps = (f"blocks.*.{CONTEXT_TAP}",)
    requires = (missing_predictions,)
    claims = (
        Claim(
            "most heads can be removed, one at a time, without a significant loss",
            "all but 8 of 96 heads of a translation encoder",
            significant_findings(1, "heads"),
            0.5,
            "half of them",
            "below",
        ),
        Claim(
            "removing some heads helps",
            "about half of those that matter",
            significant_findings(-1, "heads", as_fraction=False),
            baseline_name="none",
        ),
    )
    plots = (
        HeatMap(
            "loss increase without a head, nats", lambda r: r.values_by_head(LOSS_INCREASE), None
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        probe = prediction_probe(inputs)
        full, losses = probe.evaluate(), losses_by_head(probe)
        findings = Findings(inputs.seed)
        findings.add_loss_increases(
            LOSS_INCREASE,
            losses.reshape(-1, len(inputs.texts)),
            full.loss,
            full.num_targets,
            np.ndindex(*losses.shape[:2]),
        )
        return AnalysisResult(
            findings, {"losses": losses, "full": full.loss, "num_targets": full.num_targets}
        )


def losses_by_head(probe: PredictionProbe, keep_only: bool = False) -> FloatArray:
    """Return the losses (layers, H, N) without each head, or with only that head in its layer."""
    losses = np.zeros((*open_gates(probe.model).shape, len(probe.texts)))
    for layer, head in np.ndindex(*losses.shape[:2]):
        gates = open_gates(probe.model)
        if keep_only:
            gates[layer] = 0
        gates[layer, head] = float(keep_only)
        with gate_heads(probe.model, gates):
            losses[layer, head] = probe.evaluate().loss
    return losses
