"""Values that the viewer shows.

They are attention in four ways, queries and keys, predictions at every position, and the nearest
words in every layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.attention.rollout import attention_rollout
from bertwright.analysis.core.activations import ActivationBatch, activation_batches
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import AnalysedText
from bertwright.analysis.core.word_states import compute_word_states
from bertwright.analysis.geometry.contextuality import unit_vectors
from bertwright.analysis.identifiability.effective_attention import (
    effective_attention,
    head_output_factors,
    missing_head_outputs,
)
from bertwright.models.scoring.masked_states import masked_hidden_states
from bertwright.models.text_batches import text_batches

Array = NDArray[Any]

WEIGHTS_TAP, VALUES_TAP = "blocks.*.attention.weights", "blocks.*.attention.value"
QUERY_KEY_TAPS = ("blocks.*.attention.query", "blocks.*.attention.key")

NUM_PREDICTIONS, NUM_NEIGHBOURS = 5, 3

ATTENTION_TOLERANCE = 1e-6
"""Attention weights that differ by no more than this count as equal."""


@dataclass(frozen=True)
class PositionPrediction:
    """The most probable tokens at a position, and the probability of the actual token."""

    tokens: list[str]
    probabilities: list[float]
    actual_token_probability: float


@dataclass
class TextValues:
    """The values of one text.

    Attributes:
        tokens: (T,) tokens as strings.
        word_ids: (T,) word of each token, -1 for special tokens.
        words: The words as strings.
        arrays: Those of the following that the model has: ``weights`` (layers, H, T, T);
            ``effective``, the same shape, if it differs from the weights; ``norms`` of transformed
            values (layers, H, T); ``rollout`` (layers, T, T); ``query`` and ``key`` (layers, H, T,
            d).
        predictions: Prediction by position, None for special tokens; empty for a model without
            masked-token predictions.
        neighbours: Indices among all words, and cosines, (layers + 1, W, n) each.
    """

    tokens: list[str]
    word_ids: list[int]
    words: list[str]
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    predictions: list[PositionPrediction | None] = field(
        default_factory=list["PositionPrediction | None"]
    )
    neighbours: tuple[Array, Array] | None = None


def compute_text_values(inputs: AnalysisInput, neurons: bool) -> list[TextValues]:
    """Compute all values except neighbours; queries and keys only if ``neurons`` is True."""
    model = inputs.model
    values = [
        TextValues(
            [model.tokenizer.id_to_token(token) for token in text.token_ids],
            text.word_ids.tolist(),
            list(text.words),
        )
        for text in inputs.texts
    ]
    if missing_attention(model) is None:
        taps = (WEIGHTS_TAP, VALUES_TAP, *(QUERY_KEY_TAPS if neurons else ()))
        for batch in activation_batches(model, inputs.texts, sorted(taps)):
            for index, number in enumerate(batch.text_indices):
                values[number].arrays |= _attention_arrays(model, batch, index, neurons)
    if missing_token_predictions(model) is None:
        for text, of_text in zip(inputs.texts, values, strict=True):
            of_text.predictions = predict_positions(model, text)
    return values


def missing_attention(model: AnalysedModel) -> str | None:
    """Return why attention cannot be shown, or None if it can."""
    return model.missing_taps(WEIGHTS_TAP, VALUES_TAP)


def missing_token_predictions(model: AnalysedModel) -> str | None:
    """Return why the tokens at all positions cannot be predicted, or None if they can."""
    if not model.text_model.has_lm_head:
        return "the model has no language-model head"
    if model.text_model.is_causal:
        return "the model predicts the next token, not masked ones"
    return None


def _attention_arrays(
    model: AnalysedModel, batch: ActivationBatch, index: int, neurons: bool
) -> dict[str, Array]:
    layers, tokens = range(model.num_layers), slice(len(batch.texts[index]))
    weights = [batch.attention(layer)[index, :, tokens, tokens] for layer in layers]
    rollout = attention_rollout([layer.mean(0)[None] for layer in weights])
    raw = torch.stack(weights).double()
    transformed = torch.stack(
        [
            batch.value(layer, "attention.value")[index, :, tokens].double()
            @ head_output_factors(model, layer)
            for layer in layers
        ]
    )
    allowed = [batch.uniform_attention(layer)[index, :, tokens, tokens] > 0 for layer in layers]
    arrays = {"weights": _to_numpy(raw), "rollout": _to_numpy(torch.cat(rollout))}
    if missing_head_outputs(model) is None:
        arrays["norms"] = _to_numpy(transformed.norm(dim=-1))
    by_layer = zip(raw, transformed, allowed, strict=True)
    effective = torch.stack([effective_attention(*layer)[0] for layer in by_layer])
    if not torch.allclose(effective, raw, atol=ATTENTION_TOLERANCE):
        arrays["effective"] = _to_numpy(effective)
    for name in ("query", "key") if neurons else ():
        values = [batch.value(layer, f"attention.{name}")[index, :, tokens] for layer in layers]
        arrays[name] = _to_numpy(torch.stack(values))
    return arrays


@torch.inference_mode()
def predict_positions(model: AnalysedModel, text: AnalysedText) -> list[PositionPrediction | None]:
    """Predict every position from the others; the whole word at the position is masked."""
    tokenizer, language_model = model.tokenizer, model.text_model.model
    maskable = np.flatnonzero(text.word_ids >= 0)
    predictions: list[PositionPrediction | None] = [None] * len(text)
    sequences = [text.token_ids] * len(maskable)
    segments = [text.segment_ids] * len(maskable) if text.has_segments else None
    special, device = tokenizer.special_tokens, model.text_model.device
    for batch in text_batches(sequences, special.pad, device, segments):
        positions = maskable[batch.indices]
        targets = torch.from_numpy(positions)[:, None].to(batch.token_ids.device)
        same_word = text.word_ids[None] == text.word_ids[positions][:, None]
        later = np.arange(len(text)) >= positions[:, None]
        masked = torch.from_numpy(same_word & later).to(batch.token_ids.device)
        states = masked_hidden_states(
            language_model, batch.token_ids, batch.token_info, masked, targets, special.mask
        )
        probabilities = language_model.logits(states[:, 0]).double().softmax(-1)
        best = probabilities.topk(min(NUM_PREDICTIONS, len(tokenizer.ids)))
        actual = probabilities.gather(1, batch.token_ids.gather(1, targets))[:, 0]
        for position, values, ids, probability in zip(
            positions, best.values, best.indices, actual, strict=True
        ):
            tokens = [tokenizer.id_to_token(int(token)) for token in ids]
            predictions[position] = PositionPrediction(tokens, values.tolist(), float(probability))
    return predictions


def find_neighbours(
    inputs: AnalysisInput, text_values: Sequence[TextValues]
) -> list[tuple[int, str]]:
    """Find the nearest words in other texts, by cosine, for every layer.

    ``text_values`` belong to the first texts. Returns all words, each with the index of its text.
    """
    word_states = compute_word_states(inputs)
    start = 0
    for number, text in enumerate(text_values):
        words = slice(start, start + len(text.words))
        start = words.stop
        num_neighbours = min(NUM_NEIGHBOURS, len(word_states.words) - len(text.words))
        indices, cosines = [], []
        for layer in word_states.states:
            vectors = unit_vectors(np.asarray(layer, np.float64))
            similarity = vectors[words] @ vectors.T
            # Words of the same text are similar anyway.
            similarity[:, word_states.text_ids == number] = -np.inf
            best = np.argsort(-similarity, axis=1, kind="stable")[:, :num_neighbours]
            indices.append(best)
            cosines.append(np.take_along_axis(similarity, best, 1))
        if num_neighbours:
            text.neighbours = np.stack(indices), np.stack(cosines)
    return list(zip(word_states.text_ids.tolist(), word_states.words, strict=True))


def _to_numpy(values: Tensor) -> Array:
    return values.float().cpu().numpy()
