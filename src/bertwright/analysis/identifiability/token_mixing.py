"""How much of a hidden state comes from its own token (Brunner et al. 2020, section 5)."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.interventions import EMBEDDINGS_TAP, embed_tokens, replace_embeddings
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.texts import AnalysedText, encoder_inputs
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray, bootstrap_ratios

SELF_CONTRIBUTION_DROP = "own contribution, last layer minus first"

MAX_DISTANCE = 10
"""Maximum distance that is reported separately."""


class TokenMixing(Analysis):
    """The contribution of each input to a hidden state, by the norm of the gradient.

    The norm is estimated from ``num_directions`` random directions of the state, whose mean square
    equals the full Jacobian's. Texts of more than ``max_length`` tokens are skipped.
    """

    kind: Literal["token-mixing"] = "token-mixing"
    num_directions: int = Field(default=8, ge=1)
    max_length: int = Field(default=32, ge=2)
    survey_id = "B12"
    title = "How much of a hidden state comes from its own token?"
    source = "Brunner et al. 2020"
    taps = (EMBEDDINGS_TAP, "blocks.*.residual")
    claims = (
        Claim(
            "the own contribution falls from the first block to the last",
            "falls with depth in BERT-base, and stays the largest",
            SELF_CONTRIBUTION_DROP,
            direction="below",
        ),
    )
    plots = (
        LayerCurves(
            "own contribution",
            lambda r: {"dots: texts": r.arrays["own_contribution"].T},
            has_embeddings=False,
        ),
        LayerCurves(
            "contribution, as a power of 10",
            lambda r: {
                f"layer {n}": np.log10(np.maximum(values, 1e-9))
                for n, values in enumerate(r.arrays["by_distance"], start=1)
            },
            xlabel=f"distance in tokens ({MAX_DISTANCE}: that or more)",
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if not any(len(text) <= self.max_length for text in inputs.texts):
            return f"no text is as short as {self.max_length} tokens"
        return super().not_applicable(inputs)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        texts = [text for text in inputs.texts if len(text) <= self.max_length]
        self_fractions = np.zeros((len(texts), inputs.model.num_layers))
        by_distance = np.zeros((len(texts), inputs.model.num_layers, MAX_DISTANCE + 1))
        for number, text in enumerate(texts):
            contributions = input_contributions(
                inputs.model, text, self.num_directions, stream_key(inputs.seed, "mixing", number)
            )
            for layer, fractions in enumerate(contributions):
                self_fractions[number, layer] = np.diag(fractions).mean()
                by_distance[number, layer] = _mean_by_distance(fractions)
        findings = Findings(inputs.seed)
        for layer, interval in enumerate(bootstrap_ratios(self_fractions, seed=inputs.seed)):
            findings.add_interval("own contribution", interval, layer)
        findings.add_difference(SELF_CONTRIBUTION_DROP, self_fractions[:, -1], self_fractions[:, 0])
        arrays = {"own_contribution": self_fractions, "by_distance": by_distance.mean(0)}
        return AnalysisResult(findings, arrays)


def input_contributions(
    model: AnalysedModel, text: AnalysedText, num_directions: int, seed: int
) -> list[FloatArray]:
    """Return the fraction (T, T) that each input contributes to each hidden state, by layer."""
    token_ids, token_info = encoder_inputs(model, text)
    embeddings = embed_tokens(model, token_ids, token_info).requires_grad_()
    names = [f"blocks.{layer}.residual" for layer in range(model.num_layers)]
    with (
        torch.enable_grad(),
        replace_embeddings(model, embeddings),
        model.encoder.record(*names, output_gradients=True) as values,
    ):
        model.encoder(token_ids, token_info)
    return [
        _contribution_fractions(values[name], embeddings, num_directions, seed) for name in names
    ]


def _contribution_fractions(
    hidden_states: Tensor, embeddings: Tensor, num_directions: int, seed: int
) -> FloatArray:
    _, length, width = hidden_states.shape
    generator = torch.Generator(hidden_states.device).manual_seed(seed % 2**63)
    squares = hidden_states.new_zeros(length, length)
    for _ in range(num_directions):
        direction = torch.randn(width, generator=generator, device=hidden_states.device).to(
            hidden_states
        )
        directions = hidden_states.new_zeros(length, 1, length, width)
        directions[range(length), 0, range(length)] = direction
        (gradient,) = torch.autograd.grad(
            hidden_states, embeddings, directions, retain_graph=True, is_grads_batched=True
        )
        squares += gradient[:, 0].square().sum(-1)
    norms = squares.sqrt()
    return (norms / norms.sum(1, keepdim=True)).double().cpu().numpy()


def _mean_by_distance(fractions: FloatArray) -> FloatArray:
    """Return the mean contribution of an input at each distance."""
    positions = np.arange(len(fractions))
    distance = np.minimum(abs(positions[:, None] - positions), MAX_DISTANCE).ravel()
    sums = np.bincount(distance, fractions.ravel(), MAX_DISTANCE + 1)
    return sums / np.maximum(np.bincount(distance, minlength=MAX_DISTANCE + 1), 1)
