"""Decoding: which piece is taken of those that a model finds likely."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator, model_validator
from torch import Tensor

from bertwright.axes import Settings, explain
from bertwright.randomness import key, uniform
from bertwright.text.tokenizers import Tokenizer

Numbers = NDArray[np.float64]


class Decoding(Settings):
    """How a text goes on.

    ``temperature`` divides the logits; 0 always takes the most probable piece (greedy). Then only
    the ``top_k`` most probable pieces are left (Fan et al. 2018), and of those only the most
    probable ones that together hold ``top_p`` (Holtzman et al. 2020). ``repetition_penalty`` makes
    pieces that are already there less likely, if above 1 (Keskar et al. 2019). A text ends before
    the first of the ``stop`` texts, at the piece that ends documents, or after ``max_new_tokens``.
    ``sweeps`` is how often a masked model goes over what it adds.

    With more than one of the ``beams`` nothing is drawn: so many ways to go on are followed side by
    side, and those are best whose log-probability is, divided by their length to ``length_power``.
    """

    max_new_tokens: int = Field(default=64, ge=1, le=1 << 20)
    temperature: float = 1.0
    top_k: int | None = Field(default=None, ge=1, le=1 << 24)
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    sweeps: int = Field(default=1, ge=1, le=65_536)
    beams: int = Field(default=1, ge=1, le=4_096)
    length_power: float = 1.0
    seed: int = Field(default=0, ge=0)

    @field_validator("temperature")
    @classmethod
    def _no_less_than_zero(cls, value: float) -> float:
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"must be 0 (always the most probable piece) or more, not {value}")
        return value

    @field_validator("top_p")
    @classmethod
    def _a_share(cls, value: float) -> float:
        if not 0 < value <= 1:
            raise ValueError(f"must be more than 0 and at most 1 (all pieces), not {value}")
        return value

    @field_validator("repetition_penalty")
    @classmethod
    def _more_than_zero(cls, value: float) -> float:
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"must be more than 0 (1 changes nothing), not {value}")
        return value

    @field_validator("stop")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("must hold no empty text: every text would end before it begins")
        return value

    @model_validator(mode="after")
    def _beams_draw_nothing(self) -> Self:
        drawing = self.top_k is not None or self.top_p != 1 or self.temperature not in (0, 1)
        if self.beams > 1 and drawing:
            raise ValueError("beams draw nothing: leave out temperature, top_k and top_p")
        if self.beams == 1 and self.length_power != 1:
            raise ValueError("length_power is how beams are compared: set beams to 2 or more")
        return self

    def choose(
        self, logits: Numbers, present: Sequence[Sequence[int]], shares: Numbers
    ) -> NDArray[np.int64]:
        """The piece (B,) that each row takes: logits (B, V), -inf where a piece may not come, the
        pieces that are present in each row, and a random number (B,) in [0, 1) for each.

        The choice is by the inverse of the cumulative distribution, over pieces in the order of
        their ids.
        """
        logits = self.penalised(logits, present)
        if self.temperature == 0:
            return logits.argmax(axis=1)
        scaled = logits / self.temperature
        chances = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        chances = self._truncated(chances)
        cumulative = chances.cumsum(axis=1)
        reached = shares * cumulative[:, -1]
        found = [
            np.searchsorted(row, r, side="right")
            for row, r in zip(cumulative, reached, strict=True)
        ]
        return np.array(found, dtype=np.int64)

    def penalised(self, logits: Numbers, present: Sequence[Sequence[int]]) -> Numbers:
        """The logits (B, V), smaller where a piece is present in a row already."""
        if self.repetition_penalty == 1:
            return logits
        logits = logits.copy()
        for row, pieces in zip(logits, present, strict=True):
            there = np.unique(np.asarray(pieces, dtype=np.int64))
            above = row[there] > 0
            penalty = self.repetition_penalty
            row[there] = np.where(above, row[there] / penalty, row[there] * penalty)
        return logits

    def _truncated(self, chances: Numbers) -> Numbers:
        """The chances, 0 for all but the best."""
        if self.top_k is None and self.top_p == 1:
            return chances
        order = np.argsort(-chances, axis=1, kind="stable")
        ranked = np.take_along_axis(chances, order, axis=1)
        if self.top_k is not None:
            ranked[:, self.top_k :] = 0
        better = ranked.cumsum(axis=1) - ranked
        ranked[better >= self.top_p * ranked.sum(axis=1, keepdims=True)] = 0
        kept = np.zeros_like(chances)
        np.put_along_axis(kept, order, ranked, axis=1)
        return kept


def decoding_of(**settings: Any) -> Decoding:
    """These settings; UserError that names the one that cannot be."""
    try:
        return Decoding.model_validate(settings)
    except ValidationError as error:
        raise explain(error, "generate") from None


def log_softmax(logits: Numbers) -> Numbers:
    """Log-probabilities (B, V) of logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def share_of(seed: int, prompt: Sequence[int], sample: int, place: int) -> float:
    """The random number of a place: a function of the seed, the prompt, which of its samples this
    is and the place, so that it is the same in whatever batch."""
    return float(uniform(key(seed, "generate", sample, *prompt), place))


def only_text(tokenizer: Tokenizer, logits: Tensor, *allowed: int) -> Numbers:
    """Logits (B, V) that are -inf for what no text has: special tokens but those ``allowed``, and
    rows of the table without a token."""
    found = logits.double().cpu().numpy().copy()
    found[:, np.setdiff1d(np.arange(found.shape[1]), tokenizer.ids)] = -np.inf
    found[:, sorted(tokenizer.specials.all - set(allowed))] = -np.inf
    return found
