"""Attention as an attribution of predictions.

Attention of the last layer, rollout, and maximum flow (Abnar and Zuidema 2020).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from bertwright.analysis.attention.rollout import attention_rollout
from bertwright.analysis.attribution.input_attribution import MaskedTokenPrediction
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_masked_prediction
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.core.significance import FloatArray, spearman

ATTENTION_ESTIMATES = ("last layer", "rollout", "flow")

CAPACITY_SCALE = 2**20
"""Integer that represents a capacity of 1 in the flow library."""


class AttentionFlow(Analysis):
    """How well attention agrees with the effect of masking a token.

    In every short text one token is masked and predicted. The change of its score when another
    token is masked as well is correlated with the attention to that token. Attention is the last
    layer's, the rollout, or the maximum flow through edges with attention as capacity. Only the
    first ``max_texts`` texts of up to ``max_length`` tokens are used, because the flow is slow to
    compute.
    """

    kind: Literal["attention-flow"] = "attention-flow"
    max_length: int = Field(default=24, ge=6)
    max_texts: int = Field(default=30, ge=2)
    survey_id = "B13"
    title = "Does attention, followed through the layers, show what a prediction depends on?"
    source = "Abnar and Zuidema 2020"
    taps = ("blocks.*.attention.weights",)
    requires = (missing_masked_prediction,)
    claims = tuple(
        Claim(
            f"{estimate} agrees better than the last layer with what a prediction depends on",
            "rollout and flow agree better with the effect of masking a token",
            f"correlation, {estimate} minus last layer",
        )
        for estimate in ATTENTION_ESTIMATES[1:]
    )
    plots = (
        FindingBars(
            "rank correlation with the change of the score",
            tuple(f"correlation, {name}" for name in ATTENTION_ESTIMATES),
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        reason = super().not_applicable(inputs)
        if reason is None and not self._text_indices(inputs):
            return f"it needs texts of five to {self.max_length} tokens"
        return reason

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        predictions = [
            MaskedTokenPrediction.from_text(inputs.model, inputs.texts[number], inputs.seed, number)
            for number in self._text_indices(inputs)
        ]
        correlations = np.array([self._correlations(prediction) for prediction in predictions])
        findings = Findings(inputs.seed)
        for estimate, values in zip(ATTENTION_ESTIMATES, correlations.T, strict=True):
            findings.add_ratio(f"correlation, {estimate}", values)
        for estimate, values in zip(ATTENTION_ESTIMATES[1:], correlations.T[1:], strict=True):
            findings.add_ratio(
                f"correlation, {estimate} minus last layer", values - correlations[:, 0]
            )
        return AnalysisResult(findings, {"correlations": correlations})

    def _text_indices(self, inputs: AnalysisInput) -> list[int]:
        short = [
            number
            for number, text in enumerate(inputs.texts)
            if len(text) <= self.max_length and (text.word_ids >= 0).sum() > 3
        ]
        return short[: self.max_texts]

    def _correlations(self, prediction: MaskedTokenPrediction) -> list[float]:
        """Correlate each estimate with the score changes, over the other tokens."""
        attention, changes = mean_attention(prediction), score_changes_when_masked(prediction)
        layers = [torch.from_numpy(weights)[None] for weights in attention]
        rollout = attention_rollout(layers)[-1][0].numpy()
        others = np.flatnonzero(prediction.text.word_ids >= 0)
        others = others[others != prediction.position]
        flows = maximum_flows(attention, prediction.position)
        estimates = (attention[-1][prediction.position], rollout[prediction.position], flows)
        return [spearman(estimate[others], changes[others]) for estimate in estimates]


@torch.no_grad()
def mean_attention(prediction: MaskedTokenPrediction) -> list[FloatArray]:
    """Return the attention of every layer, averaged over heads, (T, T)."""
    model = prediction.model
    with model.encoder.record(*AttentionFlow.taps) as values:
        model.text_model.model(prediction.token_ids, prediction.token_info)
    layers = (values[f"blocks.{n}.attention.weights"] for n in range(model.num_layers))
    return [weights[0].mean(0).double().cpu().numpy() for weights in layers]


@torch.no_grad()
def score_changes_when_masked(prediction: MaskedTokenPrediction) -> FloatArray:
    """Return the absolute change of the score when each position is masked, (T,)."""
    masked = prediction.token_ids.repeat(len(prediction.text), 1)
    masked.fill_diagonal_(prediction.model.tokenizer.special_tokens.mask)
    batch: Tensor = torch.cat((prediction.token_ids, masked))
    scores = prediction.log_probabilities(prediction.embed(batch)).double().cpu().numpy()
    return np.abs(scores[1:] - scores[0])


def maximum_flows(attention: Sequence[FloatArray], position: int) -> FloatArray:
    """Return the maximum flow from a position in the last layer to each input, (T,).

    In every layer the edge from position i to position j has the capacity (A + 1)_ij / 2.
    """
    length, depth = len(attention[0]), len(attention)
    edges = np.zeros(((depth + 1) * length,) * 2, np.int32)
    for layer, weights in enumerate(attention, start=1):
        after, before = (slice(n * length, (n + 1) * length) for n in (layer, layer - 1))
        edges[after, before] = np.round((weights + np.eye(length)) / 2 * CAPACITY_SCALE)
    graph, source = csr_array(edges), depth * length + position
    flows = [maximum_flow(graph, source, sink).flow_value for sink in range(length)]
    return np.array(flows, np.float64) / CAPACITY_SCALE
