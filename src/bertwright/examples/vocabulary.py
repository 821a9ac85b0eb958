"""What a question needs to know of the vocabulary."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.text.tokenizers import Specials, Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """The token ids below ``size``, which of them are special, and how often each was seen.

    ``counts`` is (size,), in the text that is trained on; None where nobody counted. ``missing``
    ids stand for no token; ``reserved`` ones for special tokens that a text may spell.
    """

    size: int
    specials: "Specials"
    counts: NDArray[np.int64] | None = None
    missing: frozenset[int] = frozenset()
    reserved: frozenset[int] = frozenset()

    @classmethod
    def of(cls, tokenizer: "Tokenizer", counts: NDArray[np.int64] | None = None) -> "Vocabulary":
        """Return the vocabulary of a tokenizer."""
        missing, reserved = tokenizer.missing, tokenizer.reserved
        return cls(tokenizer.size, tokenizer.specials, counts, missing, reserved)

    @cached_property
    def is_reserved(self) -> NDArray[np.bool_]:
        """(size,) bool."""
        found = np.zeros(self.size, np.bool_)
        found[list(self.reserved)] = True
        return found

    @cached_property
    def tokens(self) -> NDArray[np.int64]:
        """The ids of all tokens, in rising order."""
        return np.setdiff1d(np.arange(self.size), list(self.missing))

    @cached_property
    def text_tokens(self) -> NDArray[np.int64]:
        """The ids of the tokens that are not special, in rising order."""
        return np.setdiff1d(self.tokens, list(self.specials.all))

    def piece_at(self, share: NDArray[np.float64]) -> NDArray[np.int64]:
        """The pieces that stand at these shares, in [0, 1), of the text sorted by piece."""
        return np.searchsorted(self._shares, share, side="right")

    @cached_property
    def seen(self) -> NDArray[np.float64]:
        """(size,): how often each piece was seen, at least once."""
        return np.maximum(self._counted, 1).astype(np.float64)

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        return np.cumsum(self._counted)[:-1] / self._counted.sum()

    @property
    def _counted(self) -> NDArray[np.int64]:
        if self.counts is None:
            raise UserError(
                "rarity and random_from unigram need counts of pieces, which this data set, or a "
                "text in the pieces of two vocabularies, does not have"
            )
        return self.counts
