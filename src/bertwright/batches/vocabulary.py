"""The properties of a vocabulary that masking and noising need."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bertwright.batches.arrays import BoolArray, FloatArray, IntArray
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens, Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of token ids below ``size``, with its special tokens and frequencies.

    ``counts`` (size,) are the frequencies in the training text; None if not counted. ``missing``
    ids have no token. ``reserved`` ids are special tokens that a text may spell out.
    """

    size: int
    specials: SpecialTokens
    counts: IntArray | None = None
    missing: frozenset[int] = frozenset()
    reserved: frozenset[int] = frozenset()

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, counts: IntArray | None = None) -> "Vocabulary":
        """Return the vocabulary of a tokenizer."""
        missing, reserved = tokenizer.unused_ids, tokenizer.reserved_ids
        return cls(tokenizer.vocab_size, tokenizer.special_tokens, counts, missing, reserved)

    @cached_property
    def is_reserved(self) -> BoolArray:
        """Return which ids are reserved, (size,) bool."""
        result = np.zeros(self.size, np.bool_)
        result[list(self.reserved)] = True
        return result

    @cached_property
    def token_ids(self) -> IntArray:
        """Return all token ids in ascending order."""
        return np.setdiff1d(np.arange(self.size), list(self.missing))

    @cached_property
    def text_token_ids(self) -> IntArray:
        """Return the ids of non-special tokens in ascending order."""
        return np.setdiff1d(self.token_ids, list(self.specials.all))

    def token_at_quantile(self, quantiles: FloatArray) -> IntArray:
        """Return the token at each quantile in [0, 1) of the training text, sorted by token id.

        With uniform quantiles, tokens are drawn by frequency.
        """
        return np.searchsorted(self._cumulative_frequencies, quantiles, side="right")

    @cached_property
    def smoothed_counts(self) -> FloatArray:
        """Return the token counts, at least 1 each, (size,)."""
        return np.maximum(self._required_counts, 1).astype(np.float64)

    @cached_property
    def _cumulative_frequencies(self) -> FloatArray:
        return np.cumsum(self._required_counts)[:-1] / self._required_counts.sum()

    @property
    def _required_counts(self) -> IntArray:
        if self.counts is None:
            raise UserError(
                "rarity, random_from: unigram and skip-gram need token counts, which this data "
                "set, or a text tokenized with two vocabularies, does not have"
            )
        return self.counts
