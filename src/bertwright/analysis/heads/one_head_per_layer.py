"""The cost of keeping one head per layer (Michel et al. 2019, section 3.3)."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.interventions import CONTEXT_TAP, gate_heads, open_gates
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.prediction_probe import missing_predictions, prediction_probe
from bertwright.analysis.core.result import AnalysisResult, Findings, StoredResult
from bertwright.analysis.core.texts import missing_halves
from bertwright.core.significance import split_halves


def _fraction_worse(result: StoredResult) -> Mapping[str, Any]:
    worse = [f for f in result.findings if f["adjusted_p_value"] < 0.05 and f["value"] > 0]
    return result.computed_finding(len(worse) / len(result.findings))


class OneHeadPerLayer(Analysis):
    """The loss increase when a layer keeps only one head.

    The head is chosen on half of the texts and tested on the other half, as the best of many looks
    better than it is.
    """

    kind: Literal["one-head"] = "one-head"
    survey_id = "B16"
    group = "heads"
    title = "Is one head per layer enough?"
    source = "Michel et al. 2019"
    taps = (f"blocks.*.{CONTEXT_TAP}",)
    claims = (
        Claim(
            "in most layers one head is enough",
            "in all of BERT, and in most of a translation model",
            _fraction_worse,
            0.5,
            "half of them",
            "below",
        ),
    )
    plots = (
        LayerCurves(
            "loss increase with one head only, nats",
            lambda r: {"best head": np.array([f["value"] for f in r.findings])},
            has_embeddings=False,
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        reason = super().not_applicable(inputs) or missing_predictions(inputs.model)
        return reason or missing_halves(inputs.texts, "choose by")

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        probe, gates = prediction_probe(inputs), open_gates(inputs.model)
        full, (train, test) = probe.evaluate(), split_halves(len(inputs.texts), inputs.seed)
        losses = np.zeros((*gates.shape, len(inputs.texts)))
        for layer, head in np.ndindex(*gates.shape):
            single = gates.clone()
            single[layer] = 0
            single[layer, head] = 1
            with gate_heads(inputs.model, single):
                losses[layer, head] = probe.evaluate().loss
        best = losses[..., train].sum(-1).argmin(1)
        chosen = losses[np.arange(len(best)), best][:, test]
        findings = Findings(inputs.seed)
        findings.add_loss_increases(
            "loss increase with this head only",
            chosen,
            full.loss[test],
            full.num_targets[test],
            enumerate(best.tolist()),
        )
        return AnalysisResult(
            findings, {"losses": losses, "full": full.loss, "num_targets": full.num_targets}
        )
