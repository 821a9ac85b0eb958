"""Which tokens can be masked without changing the prediction (De Cao et al. 2020, DiffMask).

Trained gates decide for each token; they are trained on many texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.interventions import EMBEDDINGS_TAP, embed_tokens, replace_embeddings
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import FindingBars, HeatMap
from bertwright.analysis.core.requirements import missing_text_prediction
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.text_prediction import TextPrediction
from bertwright.analysis.core.texts import AnalysedText, has_several_tokens
from bertwright.core.rng import stream_key, uniform
from bertwright.core.significance import split_halves
from bertwright.modules.hard_concrete import HardConcrete
from bertwright.modules.token_tensors import TokenInfo

GATE_DISTRIBUTION = HardConcrete(temperature=0.2, low=-0.2, high=1.0)

INITIAL_LOGIT = 5.0

MAX_MULTIPLIER = 200.0
"""Upper limit of the weight of the prediction change, relative to the fraction of open gates."""


class LearnedMasks(Analysis):
    """Gates that mask as many tokens as possible while the prediction stays the same.

    A small network per layer reads the embedding and the hidden state of a token and predicts a
    gate; the product of the gates up to a random layer scales the embedding. The networks are
    trained for ``steps`` on half of the texts, with a divergence of at most ``max_divergence``
    nats. The other half gives the fraction of tokens kept and the prediction change, compared with
    keeping as many random tokens. The model is not trained; its prediction is a class or a masked
    token.

    The published code differs: it masks before positions are added, separators too, has one
    multiplier for each layer, bounds the logits of the gates, and minimises the logarithm of their
    probability.
    """

    kind: Literal["learned-masks"] = "learned-masks"
    steps: int = Field(default=150, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    max_divergence: float = Field(default=0.1, gt=0)
    max_texts: int = Field(default=100, ge=4)
    survey_id = "B19"
    title = "Which tokens can be masked without changing the prediction?"
    source = "De Cao et al. 2020"
    taps = (EMBEDDINGS_TAP, "blocks.*.residual")
    requires = (missing_text_prediction,)
    claims = (
        Claim(
            "some tokens can be masked with the prediction kept",
            "most of those of SST-2, in BERT",
            "fraction of tokens kept",
            1.0,
            "all of them",
            "below",
        ),
        Claim(
            "the tokens that the gates keep carry more of the prediction than as many random ones",
            "the purpose of an attribution",
            "prediction change, random minus learned",
        ),
    )
    plots = (
        FindingBars(
            "nats", ("prediction change, nats", "prediction change, as many random tokens")
        ),
        HeatMap(
            "probability that the gate is open",
            lambda r: r.arrays["open_probabilities"],
            xlabel="position in the first text",
            ylabel="last layer of the gates (0: embeddings)",
            first=(1, 0),
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if len(self._eligible_texts(inputs)) < 8:
            return "it needs eight texts of three tokens: four to train on, four to test on"
        return super().not_applicable(inputs)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        texts = self._eligible_texts(inputs)
        train, test = (
            [MaskableText.from_text(inputs.model, texts[n], inputs.seed, int(n)) for n in half]
            for half in split_halves(len(texts), inputs.seed)
        )
        gates = self.train_gates(inputs, train)
        num_kept: list[tuple[int, int]] = []
        changes: list[list[float]] = []
        probabilities: list[Tensor] = []
        for number, text in enumerate(test):
            maskable = text.is_maskable.nonzero().flatten()
            with torch.no_grad():
                is_open = gates.gate_values(text, gates.num_layers).squeeze(-1) > 0.5
                probabilities.append(gates.open_probabilities(text, gates.num_layers))
                drawn = uniform(stream_key(inputs.seed, "open"), number, maskable.cpu().numpy())
                num_open = int(is_open[maskable].sum())
                random_open = torch.zeros_like(is_open)
                random_open[maskable[torch.from_numpy(drawn).argsort()[:num_open]]] = True
                random_open |= is_open & ~text.is_maskable
                predictions = [
                    text.predict_with_gates(gate.to(text.embeddings), gates.mask_embedding)
                    for gate in (is_open, random_open)
                ]
            num_kept.append((num_open, len(maskable)))
            changes.append([float(kl_divergence(text.probabilities, p)) for p in predictions])
        fractions = np.array(num_kept, np.float64)
        learned, random = np.array(changes, np.float64).T
        findings = Findings(inputs.seed)
        findings.add_ratio("fraction of tokens kept", *fractions.T)
        findings.add_ratio("prediction change, nats", learned)
        findings.add_ratio("prediction change, as many random tokens", random)
        findings.add_difference("prediction change, random minus learned", random, learned)
        first = probabilities[0].double().cpu().numpy()
        return AnalysisResult(
            findings, {"prediction_change": np.array(changes), "open_probabilities": first}
        )

    def _eligible_texts(self, inputs: AnalysisInput) -> list[AnalysedText]:
        return [text for text in inputs.texts[: self.max_texts] if has_several_tokens(text)]

    def train_gates(self, inputs: AnalysisInput, texts: Sequence["MaskableText"]) -> "MaskGates":
        """Train gates on these texts, one text per step."""
        generator = torch.Generator().manual_seed(stream_key(inputs.seed, "learned masks") >> 1)
        gates = MaskGates(
            texts[0].embeddings.shape[-1], len(texts[0].hidden_states), inputs.model, generator
        )
        optimizer = torch.optim.Adam(gates.parameters(), self.learning_rate)
        multiplier = texts[0].embeddings.new_ones(())
        for step in range(self.steps):
            text = texts[step % len(texts)]
            layer = int(torch.randint(gates.num_layers + 1, (), generator=generator))
            with torch.enable_grad():
                values = gates.gate_values(text, layer, generator)
                probabilities = text.predict_with_gates(values, gates.mask_embedding)
                excess = kl_divergence(text.probabilities, probabilities) - self.max_divergence
                open_fraction = gates.open_probabilities(text, layer)[-1][text.is_maskable].mean()
                loss = open_fraction + multiplier * excess
            # Only for the gates: ``backward`` would also leave gradients in the analysed model.
            gates.set_gradients(loss)
            optimizer.step()
            multiplier = (multiplier + 0.5 * excess.detach()).clamp(0, MAX_MULTIPLIER)
        return gates


@dataclass(frozen=True)
class MaskableText:
    """A text whose tokens may be masked.

    Attributes:
        prediction: The text with its original prediction.
        embeddings: (T, D) input of the first block; ``hidden_states`` are the outputs of the
        blocks.
        is_maskable: True at positions that may be masked, (T,) bool.
    """

    model: AnalysedModel
    prediction: TextPrediction
    embeddings: Tensor
    hidden_states: Sequence[Tensor]
    is_maskable: Tensor

    @staticmethod
    @torch.no_grad()
    def from_text(
        model: AnalysedModel, text: AnalysedText, seed: int, text_index: int
    ) -> "MaskableText":
        """Predict a text and record its hidden states."""
        prediction = TextPrediction.from_text(model, text, seed, text_index)
        with model.encoder.record(EMBEDDINGS_TAP, "blocks.*.residual") as values:
            prediction.predict()
        states = [values[f"blocks.{n}.residual"][0] for n in range(prediction.num_layers)]
        embeddings = values[EMBEDDINGS_TAP][0]
        is_maskable = torch.from_numpy(text.word_ids >= 0).to(embeddings.device)
        if prediction.masked_position is not None:
            is_maskable[prediction.masked_position] = False
        return MaskableText(model, prediction, embeddings, states, is_maskable)

    @property
    def probabilities(self) -> Tensor:
        """Original probabilities, (K,)."""
        return self.prediction.probabilities

    def predict_with_gates(self, gates: Tensor, mask_embedding: Tensor) -> Tensor:
        """Return the probabilities (K,) with tokens replaced by ``mask_embedding`` (D,).

        A gate, (T,) or (T, 1), is the fraction of the token's embedding that is kept.
        """
        gates = gates.view(-1, 1)
        embeddings = gates * self.embeddings + (1 - gates) * mask_embedding
        with replace_embeddings(self.model, embeddings[None]):
            return self.prediction.predict()


class MaskGates(nn.Module):
    """A gate network for each layer, including the embeddings, and a learned mask embedding."""

    def __init__(
        self, width: int, num_layers: int, model: AnalysedModel, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.num_layers = num_layers
        device = model.text_model.device
        mask_id = torch.tensor([[model.tokenizer.special_tokens.mask]], device=device)
        mask_embedding = embed_tokens(model, mask_id, TokenInfo.from_token_ids(mask_id))
        self.mask_embedding = nn.Parameter(mask_embedding[0, 0].clone())
        hidden_width = max(8, width // 4)
        self.gate_networks = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * width, hidden_width), nn.Tanh(), nn.Linear(hidden_width, 1))
            for _ in range(num_layers + 1)
        )
        for layer in self.gate_networks:
            for parameter in layer.parameters():
                values = torch.randn(parameter.shape, generator=generator)
                parameter.data.copy_(values * parameter.shape[-1] ** -0.5)
            layer[2].weight.data.mul_(0.1)  # type: ignore[index]
            layer[2].bias.data.fill_(INITIAL_LOGIT)  # type: ignore[index]
        self.to(device, self.mask_embedding.dtype)

    def set_gradients(self, loss: Tensor) -> None:
        """Set the gradients of a loss; None for the networks of layers that it does not use."""
        parameters = list(self.parameters())
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient

    def logits(self, text: MaskableText, layer: int) -> list[Tensor]:
        """Return the logits of the gates of all layers up to this one, (T,) each."""
        states = [text.embeddings, *text.hidden_states][: layer + 1]
        return [
            network(torch.cat((_normalise(text.embeddings), _normalise(hidden)), -1))[:, 0]
            for network, hidden in zip(self.gate_networks, states, strict=False)
        ]

    def open_probabilities(self, text: MaskableText, layer: int) -> Tensor:
        """Return the probability that all gates up to each layer are open, (layers, T)."""
        return torch.stack(
            [GATE_DISTRIBUTION.open_probability(logits) for logits in self.logits(text, layer)]
        ).cumprod(0)

    def gate_values(
        self, text: MaskableText, layer: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the product of all gates up to this layer, (T, 1): sampled, or deterministic.

        Gates of fixed positions are 1.
        """
        product = torch.ones_like(text.embeddings[:, 0])
        for logits in self.logits(text, layer):
            drawn = None
            if generator is not None:
                drawn = torch.rand(logits.shape, generator=generator).to(logits)
            product = product * GATE_DISTRIBUTION.gates(logits, drawn)
        return product.where(text.is_maskable, 1.0)[:, None]


def kl_divergence(reference: Tensor, other: Tensor) -> Tensor:
    """Return the KL divergence between two distributions (K,) in nats."""
    return F.kl_div(other.clamp(min=1e-12).log(), reference, reduction="sum")


def _normalise(hidden_states: Tensor) -> Tensor:
    return F.layer_norm(hidden_states, hidden_states.shape[-1:])
