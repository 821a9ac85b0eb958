"""Generation settings, and the selection of tokens from logits."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from bertwright.core.config import Settings
from bertwright.core.rng import stream_key, uniform
from bertwright.data.tokenization.tokenizer import Tokenizer

FloatArray = NDArray[np.float64]


class GenerationConfig(Settings):
    """Settings of text generation.

    ``temperature`` divides the logits; 0 is greedy decoding. ``top_k`` keeps the most probable
    tokens (Fan et al. 2018); ``top_p`` then keeps the most probable of these that together reach
    that probability (Holtzman et al. 2020). ``repetition_penalty`` above 1 makes tokens that are
    already present less likely (Keskar et al. 2019). A text ends before the first of the ``stop``
    texts, at the end token, or after ``max_new_tokens``. ``sweeps`` is the number of times that a
    masked model resamples the tokens it added.

    With ``num_beams`` above 1, beam search replaces sampling. Beams are ranked by log-probability
    divided by length to the power of ``length_penalty``.
    """

    max_new_tokens: int = Field(default=64, ge=1, le=1 << 20)
    temperature: float = Field(default=1.0, ge=0)
    top_k: int | None = Field(default=None, ge=1, le=1 << 24)
    top_p: float = Field(default=1.0, gt=0, le=1)
    repetition_penalty: float = Field(default=1.0, gt=0)
    stop: tuple[str, ...] = ()
    sweeps: int = Field(default=1, ge=1, le=65_536)
    num_beams: int = Field(default=1, ge=1, le=4_096)
    length_penalty: float = 1.0
    seed: int = Field(default=0, ge=0)

    @field_validator("stop", mode="before")
    @classmethod
    def _list_texts(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("must hold no empty text: every text would end before it begins")
        return value

    @model_validator(mode="after")
    def _check_beams(self) -> Self:
        samples = self.top_k is not None or self.top_p != 1 or self.temperature not in (0, 1)
        if self.num_beams > 1 and samples:
            raise ValueError("beam search does not sample: leave out temperature, top_k and top_p")
        if self.num_beams == 1 and self.length_penalty != 1:
            raise ValueError("length_penalty ranks beams: set num_beams to 2 or more")
        return self

    def sample(
        self, logits: FloatArray, present_ids: Sequence[Sequence[int]], uniforms: FloatArray
    ) -> NDArray[np.int64]:
        """Return a token id for each sequence, (B,).

        ``logits`` (B, V) are -inf for excluded tokens. ``uniforms`` (B,) in [0, 1) select tokens
        from the cumulative distribution over token ids in order. ``present_ids`` are the token ids
        for the repetition penalty.
        """
        logits = self.penalise_repetition(logits, present_ids)
        if self.temperature == 0:
            return logits.argmax(axis=1)
        scaled = logits / self.temperature
        probabilities = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        probabilities = self._top_k_top_p(probabilities)
        cumulative = probabilities.cumsum(axis=1)
        targets = uniforms * cumulative[:, -1]
        token_ids = [
            np.searchsorted(row, target, side="right")
            for row, target in zip(cumulative, targets, strict=True)
        ]
        return np.array(token_ids, dtype=np.int64)

    def penalise_repetition(
        self, logits: FloatArray, present_ids: Sequence[Sequence[int]]
    ) -> FloatArray:
        """Return logits (B, V), reduced for tokens that are already in the sequence."""
        if self.repetition_penalty == 1:
            return logits
        logits = logits.copy()
        for row, token_ids in zip(logits, present_ids, strict=True):
            present = np.unique(np.asarray(token_ids, dtype=np.int64))
            is_positive = row[present] > 0
            penalty = self.repetition_penalty
            row[present] = np.where(is_positive, row[present] / penalty, row[present] * penalty)
        return logits

    def _top_k_top_p(self, probabilities: FloatArray) -> FloatArray:
        """Return the probabilities with all but the ``top_k`` and ``top_p`` set to 0."""
        if self.top_k is None and self.top_p == 1:
            return probabilities
        order = np.argsort(-probabilities, axis=1, kind="stable")
        ranked = np.take_along_axis(probabilities, order, axis=1)
        if self.top_k is not None:
            ranked[:, self.top_k :] = 0
        preceding = ranked.cumsum(axis=1) - ranked
        ranked[preceding >= self.top_p * ranked.sum(axis=1, keepdims=True)] = 0
        truncated = np.zeros_like(probabilities)
        np.put_along_axis(truncated, order, ranked, axis=1)
        return truncated


def log_softmax(logits: FloatArray) -> FloatArray:
    """Return the log-probabilities (B, V) of logits (B, V)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def sampling_uniform(seed: int, prompt_ids: Sequence[int], sample: int, position: int) -> float:
    """Return the random number for a position.

    It depends only on the seed, the prompt, the sample number and the position, not on the batch.
    """
    return float(uniform(stream_key(seed, "generate", sample, *prompt_ids), position))


def mask_special_logits(tokenizer: Tokenizer, logits: Tensor, *allowed_ids: int) -> FloatArray:
    """Return logits (B, V) with -inf for ids without a token and for special tokens.

    ``allowed_ids`` keep their logits.
    """
    masked = logits.double().cpu().numpy().copy()
    masked[:, np.setdiff1d(np.arange(masked.shape[1]), tokenizer.ids)] = -np.inf
    masked[:, sorted(tokenizer.special_tokens.all - set(allowed_ids))] = -np.inf
    return masked
