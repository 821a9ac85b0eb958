"""The cost of keeping one head per layer (Michel et al. 2019, section 3.3)."""

from typing import Literal

import numpy as np

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim, significant_findings
from bertwright.analysis.core.interventions import CONTEXT_TAP
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.prediction_probe import prediction_probe
from bertwright.analysis.core.requirements import missing_halves, missing_predictions
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.heads.head_ablation import losses_by_head
from bertwright.core.significance import split_halves


class OneHeadPerLayer(Analysis):
    """The loss increase when a layer keeps only one head.

    The head is selected on half of the texts and tested on the other half, because the best of many
    looks better than it is.
    """

    kind: Literal["one-head"] = "one-head"
    survey_id = "B16"
    title = "Is one head per layer enough?"
    source = "Michel et al. 2019"
    taps = (f"blocks.*.{CONTEXT_TAP}",)
    requires = (missing_predictions, missing_halves("choose by"))
    claims = (
        Claim(
            "in most layers one head is enough",
            "in all of BERT, and in half of a translation model with heads chosen on other texts",
            significant_findings(1, "layers"),
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

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        probe, (train, test) = (
            prediction_probe(inputs),
            split_halves(len(inputs.texts), inputs.seed),
        )
        full, losses = probe.evaluate(), losses_by_head(probe, keep_only=True)
        best = losses[..., train].sum(-1).argmin(1)
        single_head_losses = losses[np.arange(len(best)), best][:, test]
        findings = Findings(inputs.seed)
        findings.add_loss_increases(
            "loss increase with this head only",
            single_head_losses,
            full.loss[test],
            full.num_targets[test],
            enumerate(best.tolist()),
        )
        return AnalysisResult(
            findings, {"losses": losses, "full": full.loss, "num_targets": full.num_targets}
        )
