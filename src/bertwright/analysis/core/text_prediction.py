"""The prediction for a single text and its attention, for interventions."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import is_classifier
from bertwright.analysis.core.texts import AnalysedText, encoder_inputs
from bertwright.core.rng import stream_key, uniform
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.fine_tuned_model import FineTunedModel


@dataclass(frozen=True)
class TextPrediction:
    """A text with its prediction.

    Attributes:
        token_ids: (1, T); for a language model, with one position masked.
        masked_position: The masked position; None for a classifier.
        probabilities: (K,) of classes or tokens.
        attention: Weights of every layer that the prediction reads, (1, H, T, T).
    """

    model: AnalysedModel
    token_ids: Tensor
    token_info: TokenInfo
    masked_position: int | None
    probabilities: Tensor
    attention: Sequence[Tensor]

    @staticmethod
    @torch.no_grad()
    def from_text(
        model: AnalysedModel, text: AnalysedText, seed: int, text_index: int
    ) -> "TextPrediction":
        """Predict a text; for a language model the masked position is drawn at random."""
        (token_ids, token_info), position = encoder_inputs(model, text), None
        if not is_classifier(model):
            position = draw_position(text, stream_key(seed, "saying"), text_index)
            token_ids[0, position] = model.tokenizer.special_tokens.mask
        with model.encoder.record("blocks.*.attention.weights") as values:
            probabilities = _predict(model, token_ids, token_info, position)
        layers = range(model.num_layers_read)
        attention = [values[f"blocks.{layer}.attention.weights"] for layer in layers]
        return TextPrediction(model, token_ids, token_info, position, probabilities, attention)

    @property
    def num_layers(self) -> int:
        """Number of layers that the prediction reads."""
        return len(self.attention)

    def predict(self) -> Tensor:
        """Return the probabilities (K,) predicted by the model in its current state."""
        return _predict(self.model, self.token_ids, self.token_info, self.masked_position)

    def replace_attention(
        self, layer: int, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Replace the attention (1, H, T, T) of a layer by a function of it."""
        return self.model.encoder.replace(f"blocks.{layer}.attention.weights", function)

    def predict_with_score_offsets(self, offsets: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Return attention by layer and probabilities (K,), with ``offsets`` added to the scores.

        ``offsets`` has one tensor (1, H, T, T) per layer.
        """
        encoder, tap = self.model.encoder, "blocks.{}.attention.{}"
        with ExitStack() as stack:
            for layer, offset in enumerate(offsets):
                name = tap.format(layer, "scores")
                stack.enter_context(encoder.replace(name, lambda scores, by=offset: scores + by))
            values = stack.enter_context(
                encoder.record("blocks.*.attention.weights", output_gradients=True)
            )
            probabilities = self.predict()
        return [values[tap.format(n, "weights")] for n in range(len(offsets))], probabilities


def draw_position(text: AnalysedText, key: int, text_index: int) -> int:
    """Draw the position of a token that belongs to a word."""
    maskable = np.flatnonzero(text.word_ids >= 0)
    return int(maskable[uniform(key, text_index, maskable).argmin()])


def _predict(
    model: AnalysedModel, token_ids: Tensor, token_info: TokenInfo, masked_position: int | None
) -> Tensor:
    text_model = model.text_model
    if masked_position is None:
        assert isinstance(text_model, FineTunedModel)
        return text_model.task_model(token_ids, token_info)[0].softmax(-1)
    states = text_model.model(token_ids, token_info)
    return text_model.model.logits(states[:, masked_position])[0].softmax(-1)
