"""How much attention does the first token get? (Clark et al. 2019, section 3.2).

bertwright analyse encoder first-token --plugin first_token_attention.py --data texts.txt -o out
"""

from typing import Literal

import numpy as np

from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves, values_by_head
from bertwright.analysis.core.result import AnalysisResult, Findings

METRIC = "attention to the first token"


class FirstTokenAttention(StreamingAnalysis):
    """The attention that the first token gets, averaged over queries; uniform for comparison."""

    kind: Literal["first-token"] = "first-token"
    survey_id = "X1"
    group = "attention"
    title = "How much attention does the first token get?"
    source = "Clark et al. 2019, section 3.2"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "the first token gets more attention in the last layer than in the first",
            "[CLS] gets most in the early layers of BERT-base, [SEP] later",
            "last layer minus first",
        ),
    )
    plots = (LayerCurves("fraction", values_by_head(METRIC), has_embeddings=False),)

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        layers = range(inputs.model.num_layers)
        received = [batch.attention(layer)[..., 0].sum(-1) for layer in layers]  # (B, H) each
        lengths = batch.lengths[:, None]
        return {"mass": np.stack([(mass / lengths).double().cpu().numpy() for mass in received], 1)}

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        mass = np.array(measured["mass"])  # (N, layers, heads)
        uniform = np.mean([1 / len(text) for text in inputs.texts])
        findings = Findings(inputs.seed)
        baseline = ("uniform", np.full((*mass.shape[1:], 1), uniform))
        findings.add_by_head([METRIC], mass[..., None], baseline)
        findings.add_ratio("last layer minus first", mass[:, -1].mean(1) - mass[:, 0].mean(1))
        return AnalysisResult(findings, {"mass": mass.mean(0)})
