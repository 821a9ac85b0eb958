"""What a question needs to know of the vocabulary."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.text.tokenizers import Specials


@dataclass(frozen=True)
class Vocabulary:
    """How many pieces there are, which of them stand for no text, and how often each was seen.

    ``counts`` is (size,), in the text that is trained on; None where nobody counted.
    """

    size: int
    specials: "Specials"
    counts: NDArray[np.int64] | None = None

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
