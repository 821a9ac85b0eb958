"""Attribution of a prediction to the input tokens.

By gradient, gradient times input, and integrated gradients (Sundararajan et al. 2017).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.interventions import EMBEDDINGS_TAP, embed_tokens, replace_embeddings
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_long_texts, missing_masked_prediction
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.text_prediction import draw_position
from bertwright.analysis.core.texts import AnalysedText, encoder_inputs, has_several_tokens
from bertwright.core.rng import stream_key, uniform
from bertwright.core.significance import FloatArray
from bertwright.modules.token_tensors import TokenInfo

AttributionMethod = Literal["gradient", "gradient times input", "integrated gradients"]

RANDOM = "random tokens"

POINTS_PER_BATCH = 32
"""Number of points on the integration path per forward pass."""

MASKED_FRACTION = 0.2
"""Fraction of tokens that are masked to measure the score drop."""


class InputAttribution(Analysis):
    """How well attribution methods find the tokens that a prediction depends on.

    In every text one token is masked and its score is attributed to the other tokens. A method is
    good if masking the tokens that it ranks highest lowers the score more than masking random ones.
    Integrated gradients use ``num_points`` on the straight path from a sequence of masks. Their
    completeness error is the deviation of their sum from the difference of the scores.
    """

    kind: Literal["input-attribution"] = "input-attribution"
    num_points: int = Field(default=64, ge=2)
    survey_id = "B20"
    title = "Which tokens does a prediction depend on?"
    source = "Sundararajan et al. 2017"
    taps = (EMBEDDINGS_TAP,)
    requires = (missing_masked_prediction, missing_long_texts)
    claims = (
        Claim(
            "integrated gradients add up to the difference of the scores",
            "exact in the limit (completeness)",
            "largest relative completeness error",
            0.05,
            "a twentieth",
            "below",
        ),
        *(
            Claim(
                f"masking the tokens that {method} ranks highest lowers the score more than "
                "masking random ones",
                "the purpose of an attribution",
                f"score drop, {method} minus random",
            )
            for method in ("gradient", "gradient times input", "integrated gradients")
        ),
    )
    plots = (
        FindingBars(
            "score drop with a fifth of the tokens masked, nats",
            tuple(f"score drop, {name}" for name in (*get_args(AttributionMethod), RANDOM)),
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        predictions = [
            MaskedTokenPrediction.from_text(inputs.model, text, inputs.seed, number)
            for number, text in enumerate(inputs.texts)
            if has_several_tokens(text)
        ]
        drops: dict[str, list[float]] = {}
        errors: list[float] = []
        arrays: dict[str, FloatArray] = {}
        for number, prediction in enumerate(predictions):
            attributions, error = prediction.attribute(self.num_points)
            errors.append(error)
            for name, values in attributions.items():
                drops.setdefault(name, []).append(prediction.score_drop(values))
            positions = np.arange(len(prediction.text))
            drawn = uniform(stream_key(inputs.seed, "at random"), number, positions)
            drops.setdefault(RANDOM, []).append(prediction.score_drop(drawn))
            if number == 0:
                arrays = {f"first_text, {name}": values for name, values in attributions.items()}
        findings = Findings(inputs.seed)
        findings.add_value(
            "largest relative completeness error", max(errors), num_units=len(errors)
        )
        random = np.array(drops[RANDOM])
        for name, values in drops.items():
            findings.add_ratio(f"score drop, {name}", values)
            if name != RANDOM:
                findings.add_ratio(f"score drop, {name} minus random", np.array(values) - random)
        return AnalysisResult(findings, {**arrays, "score_drops": np.array(list(drops.values()))})


@dataclass(frozen=True)
class MaskedTokenPrediction:
    """A text with one masked token to predict."""

    model: AnalysedModel
    text: AnalysedText
    token_ids: Tensor
    token_info: TokenInfo
    position: int
    target_id: int

    @staticmethod
    def from_text(
        model: AnalysedModel, text: AnalysedText, seed: int, text_index: int
    ) -> "MaskedTokenPrediction":
        """Mask a position of the text, drawn with the seed."""
        position = draw_position(text, stream_key(seed, "asked"), text_index)
        token_ids, token_info = encoder_inputs(model, text)
        target = int(token_ids[0, position])
        token_ids[0, position] = model.tokenizer.special_tokens.mask
        return MaskedTokenPrediction(model, text, token_ids, token_info, position, target)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the embeddings (B, T, D) of other tokens (B, T) at the same positions."""
        return embed_tokens(self.model, token_ids, self.token_info)

    def log_probabilities(self, embeddings: Tensor) -> Tensor:
        """Return the log-probability of the target for each of the embeddings (B, T, D)."""
        model = self.model.text_model.model
        with replace_embeddings(self.model, embeddings):
            states = model(self.token_ids.expand(len(embeddings), -1), self.token_info)
        return model.logits(states[:, self.position]).log_softmax(-1)[:, self.target_id]

    def attribute(self, num_points: int) -> tuple[Mapping[AttributionMethod, FloatArray], float]:
        """Attribute the score to positions; return (T,) by method.

        The second value is the relative completeness error of integrated gradients.
        """
        masks = torch.full_like(self.token_ids, self.model.tokenizer.special_tokens.mask)
        embeddings, baseline = self.embed(self.token_ids), self.embed(masks)
        gradients = self._gradients(embeddings)
        steps = (torch.arange(num_points, device=embeddings.device) + 0.5) / num_points
        mean_gradients = torch.zeros_like(embeddings)
        for points in steps.to(embeddings).split(POINTS_PER_BATCH):
            mean_gradients += (
                self._gradients(baseline + points[:, None, None] * (embeddings - baseline)).sum(0)
                / num_points
            )
        integrated = (mean_gradients * (embeddings - baseline)).sum(-1)[0]
        with torch.no_grad():
            difference = float(
                self.log_probabilities(embeddings) - self.log_probabilities(baseline)
            )
        error = abs(float(integrated.sum()) - difference) / max(abs(difference), 1e-6)
        attributions: dict[AttributionMethod, Tensor] = {
            "gradient": gradients.norm(dim=-1)[0],
            "gradient times input": (gradients * embeddings).sum(-1)[0],
            "integrated gradients": integrated,
        }
        return {name: value.double().cpu().numpy() for name, value in attributions.items()}, error

    @torch.no_grad()
    def score_drop(self, importance: FloatArray) -> float:
        """Return how much the score drops when the most important tokens are masked."""
        others = np.flatnonzero(self.text.word_ids >= 0)
        others = others[others != self.position]
        number = max(1, round(MASKED_FRACTION * len(others)))
        top = others[np.argsort(-importance[others], kind="stable")[:number]]
        masked = self.token_ids.clone()
        masked[0, top.tolist()] = self.model.tokenizer.special_tokens.mask
        full, rest = (self.log_probabilities(self.embed(ids)) for ids in (self.token_ids, masked))
        return float(full - rest)

    def _gradients(self, embeddings: Tensor) -> Tensor:
        """Return the gradients of each score with respect to its embeddings, (B, T, D)."""
        with torch.enable_grad():
            inputs = embeddings.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_probabilities(inputs).sum(), inputs)
        return gradient
