"""Corruption: what replaces the selected tokens."""

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bertwright.batches.arrays import Int32Array, IntArray
from bertwright.batches.masking import SelectedPositions
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.config import Config
from bertwright.core.rng import CounterRng, Counters


class Corruption(Config):
    """A replacement of the selected tokens.

    If ``when`` is ``dynamic`` (RoBERTa), every epoch has new masks. If it is ``static`` (BERT),
    masks are drawn only ``copies`` times: epoch e repeats epoch e - copies.
    """

    when: Literal["dynamic", "static"] = "dynamic"
    copies: int = Field(default=10, ge=1, le=65_536)

    def repeated_epoch(self, epoch: Counters) -> Counters:
        """Return the epoch whose masks ``epoch`` repeats; its sequences must be repeated, too."""
        return epoch % self.copies if self.when == "static" else epoch

    def corrupt(
        self,
        batch: SequenceBatch,
        selected: SelectedPositions,
        vocabulary: Vocabulary,
        rng: CounterRng,
    ) -> Int32Array:
        """Return the corrupted token ids (B, L); selected positions of weight 0 are unchanged."""
        raise TypeError(f"{type(self).__name__} is an axis, not a corruption")


class TokenReplacement(Corruption):
    """A mask, a random token, or the token itself (Devlin et al. 2019: 80, 10, 10 %).

    Random tokens come from the whole ``vocabulary`` (BERT; special tokens and the token itself
    included), are ``non-special`` (RoBERTa), or follow the frequencies in the text (``unigram``,
    SpanBERT). The choice is made per ``unit``: for each ``token``, even within a whole word, as in
    BERT's code, or once for each ``selected`` word or span, as in RoBERTa's and SpanBERT's.
    """

    kind: Literal["replace"] = "replace"
    mask: float = Field(default=0.8, ge=0.0, le=1.0)
    random: float = Field(default=0.1, ge=0.0, le=1.0)
    keep: float = Field(default=0.1, ge=0.0, le=1.0)
    random_from: Literal["vocabulary", "non-special", "unigram"] = "vocabulary"
    unit: Literal["token", "selected"] = "token"

    @model_validator(mode="after")
    def _check_fractions(self) -> Self:
        total = self.mask + self.random + self.keep
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, not {total:g}")
        return self

    def corrupt(
        self,
        batch: SequenceBatch,
        selected: SelectedPositions,
        vocabulary: Vocabulary,
        rng: CounterRng,
    ) -> Int32Array:
        positions = selected.positions
        unit_ids = positions if self.unit == "token" else selected.unit_ids
        die = rng.fold_in("die").uniform(unit_ids)
        random_tokens = self._random_tokens(vocabulary, rng.fold_in("piece"), positions)
        replacements = np.where(die < self.mask, vocabulary.specials.mask, random_tokens)
        altered = (die < self.mask + self.random) & (selected.weights > 0)
        sequence, slot = np.nonzero(altered)
        token_ids = batch.token_ids.copy()
        token_ids[sequence, positions[sequence, slot]] = replacements[sequence, slot]
        return token_ids

    def _random_tokens(
        self, vocabulary: Vocabulary, rng: CounterRng, positions: IntArray
    ) -> IntArray:
        """Draw a random token for every position."""
        if self.random_from == "unigram":
            return vocabulary.token_at_quantile(rng.uniform(positions))
        text_only = self.random_from == "non-special"
        tokens = vocabulary.text_token_ids if text_only else vocabulary.token_ids
        return tokens[rng.integers(len(tokens), positions)]
