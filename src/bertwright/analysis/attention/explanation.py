"""Whether attention explains a prediction.

Jain and Wallace (2019); Wiegreffe and Pinter (2019); Serrano and Smith (2019).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars, LayerCurves
from bertwright.analysis.core.requirements import missing_long_texts, missing_text_prediction
from bertwright.analysis.core.result import AnalysisResult, Findings, StoredResult
from bertwright.analysis.core.text_prediction import TextPrediction
from bertwright.analysis.core.texts import has_several_tokens
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray
from bertwright.tasks.fine_tuned_model import FineTunedModel

PERMUTED, UNIFORM = "permuted", "uniform"
WITHOUT_MOST_ATTENDED, WITHOUT_RANDOM_POSITION = (
    "without the most attended position",
    "without a random position",
)

ATTENTION_CHANGES = (PERMUTED, UNIFORM, WITHOUT_MOST_ATTENDED, WITHOUT_RANDOM_POSITION)

SCALE_TOLERANCE = 0.1
"""Relative precision of the search for the largest scale that keeps the prediction."""

WeightFunction = Callable[[Tensor], Tensor]


def _attention_change_bound(result: StoredResult) -> Mapping[str, Any]:
    kept = result.overall_finding("attention change with the prediction kept")
    # The search gives a lower bound: a small value does not mean that a larger one is impossible.
    return {**kept, "interval": (kept["interval"][0], math.log(2))} if "interval" in kept else kept


class AttentionExplanation(Analysis):
    """How much a prediction depends on attention, and how much attention can change without it.

    The prediction change (total variation, 0 to 1) is measured after changing the attention weights
    of one layer, in all heads: permuted (``num_permutations`` times), uniform, or without the
    position with the most attention (or a random one). The attention change (mean Jensen-Shannon
    divergence, up to 0.69 nats, over queries that affect the prediction) is maximised while the
    prediction changes by at most ``max_prediction_change``: a gradient search of ``steps`` over all
    layers gives a lower bound. The prediction is the class of a text, or a masked token.
    """

    kind: Literal["attention-explains"] = "attention-explains"
    num_permutations: int = Field(default=5, ge=1)
    steps: int = Field(default=12, ge=1)
    learning_rate: float = Field(default=1.0, gt=0)
    max_prediction_change: float = Field(default=0.05, gt=0, lt=1)
    max_texts: int = Field(default=60, ge=1)
    survey_id = "B50"
    title = "Does attention explain the prediction?"
    source = "Jain and Wallace 2019"
    taps = ("blocks.*.attention.weights", "blocks.*.attention.scores")
    requires = (missing_text_prediction,)
    claims = (
        Claim(
            "removing the most attended position changes the prediction more than removing "
            "another one",
            "often, though not always",
            "prediction change, most attended minus random position",
        ),
        Claim(
            "other attention weights can give the same prediction",
            "near the maximum of 0.69 in many tasks",
            _attention_change_bound,
            0.1,
            "a tenth of a nat",
        ),
    )
    plots = (
        LayerCurves(
            "prediction change, total variation",
            lambda r: {name: r.arrays[name].mean(0) for name in ATTENTION_CHANGES},
            False,
            "layer whose attention is changed",
        ),
        FindingBars("nats per query", ("attention change with the prediction kept",)),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        first = replace(inputs, texts=inputs.texts[: self.max_texts])
        return super().not_applicable(inputs) or missing_long_texts(first)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        predictions = [
            TextPrediction.from_text(inputs.model, text, inputs.seed, number)
            for number, text in enumerate(inputs.texts[: self.max_texts])
            if has_several_tokens(text)
        ]
        changes: dict[str, list[FloatArray]] = {name: [] for name in ATTENTION_CHANGES}
        adversary: list[tuple[float, float]] = []
        for number, prediction in enumerate(predictions):
            generator = torch.Generator().manual_seed(
                stream_key(inputs.seed, "permuted", number) >> 1
            )
            by_layer = [
                self._prediction_changes(prediction, layer, generator)
                for layer in range(prediction.num_layers)
            ]
            for name, values in changes.items():
                values.append(np.array([change[name] for change in by_layer]))
            adversary.append(self._adversarial_attention(prediction))
        table = {name: np.array(values) for name, values in changes.items()}
        findings = Findings(inputs.seed)
        for name, array in table.items():
            for layer, values in enumerate(array.T):
                findings.add_ratio(f"prediction change, {name}", values, layer=layer)
        most, other = (
            table[name].mean(1) for name in (WITHOUT_MOST_ATTENDED, WITHOUT_RANDOM_POSITION)
        )
        attention_change = np.array([change for change, _ in adversary])
        findings.add_difference(
            "prediction change, most attended minus random position", most, other
        )
        findings.add_ratio("attention change with the prediction kept", attention_change)
        largest = max(change for _, change in adversary)
        findings.add_value("largest prediction change of that", largest)
        return AnalysisResult(findings, {**table, "adversary": np.array(adversary)})

    @torch.no_grad()
    def _prediction_changes(
        self, prediction: TextPrediction, layer: int, generator: torch.Generator
    ) -> dict[str, float]:
        def change(function: WeightFunction) -> float:
            with prediction.replace_attention(layer, function):
                return total_variation(prediction.probabilities, prediction.predict())

        mass = prediction.attention[layer].mean((0, 1, 2))
        positions = torch.randperm(len(mass), generator=generator).tolist()
        most = int(mass.argmax())
        other = next(position for position in positions if position != most)
        permuted = [change(permute_weights(generator)) for _ in range(self.num_permutations)]
        return {
            PERMUTED: sum(permuted) / self.num_permutations,
            UNIFORM: change(uniform_weights),
            WITHOUT_MOST_ATTENDED: change(remove_position(most)),
            WITHOUT_RANDOM_POSITION: change(remove_position(other)),
        }

    def _adversarial_attention(self, prediction: TextPrediction) -> tuple[float, float]:
        """Return the largest attention change within the bound, and its prediction change."""
        queries = reachable_queries(prediction.attention, head_positions(prediction))
        generator = torch.Generator().manual_seed(0)
        offsets: list[Tensor] = []
        for weights, is_reachable in zip(prediction.attention, queries, strict=True):
            noise = 0.1 * torch.randn(weights.shape, generator=generator).to(weights)
            offsets.append((noise * is_reachable[:, None]).requires_grad_())

        def changes(scale: float) -> tuple[Tensor, Tensor]:
            weights, probabilities = prediction.predict_with_score_offsets(
                [scale * offset for offset in offsets]
            )
            both = (
                [w[:, :, n] for w, n in zip(a, queries, strict=True)]
                for a in (prediction.attention, weights)
            )
            return mean_jensen_shannon_divergence(*both), 0.5 * (
                probabilities - prediction.probabilities
            ).abs().sum()

        optimizer, best = torch.optim.Adam(offsets, self.learning_rate), (0.0, 0.0)
        for _ in range(self.steps):
            with torch.enable_grad():
                divergence, change = changes(1.0)
                loss = 10 * torch.relu(change - self.max_prediction_change / 2) - divergence
                gradients = torch.autograd.grad(loss, offsets)
            if float(divergence.detach()) > best[0]:
                best = max(best, self._largest_allowed_change(changes))
            for offset, gradient in zip(offsets, gradients, strict=True):
                offset.grad = gradient
            optimizer.step()
        return best

    @torch.no_grad()
    def _largest_allowed_change(
        self, changes_at_scale: Callable[[float], tuple[Tensor, Tensor]]
    ) -> tuple[float, float]:
        """Return the changes at the largest scale of the offsets that stays within the bound."""
        low, high, best = 0.0, 2.0, (0.0, 0.0)
        while high - low > SCALE_TOLERANCE * high:
            scale = (low + high) / 2
            attention_change, prediction_change = map(float, changes_at_scale(scale))
            if prediction_change <= self.max_prediction_change:
                low, best = scale, (attention_change, prediction_change)
                if scale == 1:
                    return best
            else:
                high = scale
        return best


def head_positions(prediction: TextPrediction) -> Tensor:
    """Return the positions whose final hidden states the prediction reads, (T,) bool."""
    model, length = prediction.model.text_model, prediction.token_ids.shape[1]
    if prediction.masked_position is not None:
        positions: Tensor | None = torch.tensor([prediction.masked_position])
    else:
        assert isinstance(model, FineTunedModel)
        positions = model.task_model.head.output_positions(
            prediction.token_ids, prediction.token_info.document_ids
        )
    if positions is None:
        positions = torch.arange(length)
    read = torch.zeros(length, dtype=torch.bool, device=prediction.token_ids.device)
    read[positions] = True
    return read


def reachable_queries(attention: Sequence[Tensor], is_read: Tensor) -> list[Tensor]:
    """Return for every layer which queries the positions ``is_read`` (T,) depend on, (T,) bool.

    The other queries' attention (1, H, T, T) can change without any effect.
    """
    queries: list[Tensor] = []
    for weights in reversed(attention):
        queries.append(is_read)
        is_read = is_read | (weights[0, :, is_read] > 0).flatten(0, 1).any(0)
    return queries[::-1]


def permute_weights(generator: torch.Generator) -> WeightFunction:
    """Return a function that permutes each query's weights among its allowed keys."""

    def change(weights: Tensor) -> Tensor:
        drawn = torch.rand(weights.shape, generator=generator).to(weights.device)
        drawn = drawn.masked_fill(weights == 0, 2.0)
        # The n-th allowed key gets the weight of the key with the n-th smallest random number.
        order, allowed = drawn.argsort(-1), (weights == 0).to(drawn).argsort(stable=True, dim=-1)
        return torch.zeros_like(weights).scatter(-1, allowed, weights.gather(-1, order))

    return change


def uniform_weights(weights: Tensor) -> Tensor:
    """Return uniform weights over the allowed keys."""
    allowed = (weights > 0).to(weights)
    return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)


def remove_position(position: int) -> WeightFunction:
    """Return a function that removes a key and renormalises the other weights.

    A query with no other key is left unchanged.
    """

    def change(weights: Tensor) -> Tensor:
        rest = weights.clone()
        rest[..., position] = 0
        sums = rest.sum(-1, keepdim=True)
        return torch.where(sums > 0, rest / sums.clamp(min=1e-12), weights)

    return change


def total_variation(first: Tensor, second: Tensor) -> float:
    """Return the total variation distance between two distributions (K,), 0 to 1."""
    return float(0.5 * (first - second).abs().sum())


def mean_jensen_shannon_divergence(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Return the Jensen-Shannon divergence in nats, averaged over layers, heads and queries."""

    # Clamped, unlike ``entropy`` of attention, because gradients are needed at 0.
    def entropy(weights: Tensor) -> Tensor:
        return -(weights * weights.clamp(min=1e-12).log()).sum(-1)

    divergences = [
        (entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2).mean()
        for a, b in zip(first, second, strict=True)
    ]
    return torch.stack(divergences).mean()
