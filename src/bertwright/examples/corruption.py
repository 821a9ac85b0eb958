"""Corruption: what is seen at the chosen places instead of the piece that stands there."""

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bertwright.axes import Choice
from bertwright.examples.coordinates import Rows
from bertwright.examples.selection import Chosen
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Counters, Draw


class Corruption(Choice):
    """The axis.

    ``when``: masks are drawn anew in every epoch (``dynamic``, RoBERTa), or only ``copies`` times
    (``static``, BERT: epoch e shows what epoch e - copies showed).
    """

    when: Literal["dynamic", "static"] = "dynamic"
    copies: int = Field(default=10, ge=1, le=65_536)

    def visit(self, epoch: Counters) -> Counters:
        """The epoch that ``epoch`` repeats; rows must be assembled at this one, too."""
        return epoch % self.copies if self.when == "static" else epoch

    def corrupt(
        self,
        rows: Rows,
        chosen: Chosen,
        vocabulary: Vocabulary,
        draw: Draw,
    ) -> NDArray[np.int32]:
        """The pieces (B, L) to show; chosen places of weight 0 keep theirs."""
        raise TypeError(f"{type(self).__name__} is an axis, not a corruption")


class Replace(Corruption):
    """A mask, a random piece, or the piece itself (Devlin et al. 2019: 80, 10, 10 %).

    ``random_from`` is ``vocabulary`` in BERT, special tokens and the piece itself included,
    ``non-special`` in RoBERTa, and ``unigram``, by their frequency in the text, in SpanBERT.
    ``unit`` is what the die is cast for: each ``piece``, also of a whole word, in BERT's code; all
    pieces that were ``selected`` together, a word or a span, in those of RoBERTa and SpanBERT.
    """

    kind: Literal["replace"] = "replace"
    mask: float = Field(default=0.8, ge=0.0, le=1.0)
    random: float = Field(default=0.1, ge=0.0, le=1.0)
    keep: float = Field(default=0.1, ge=0.0, le=1.0)
    random_from: Literal["vocabulary", "non-special", "unigram"] = "vocabulary"
    unit: Literal["piece", "selected"] = "piece"

    @model_validator(mode="after")
    def _shares_of_one(self) -> Self:
        total = self.mask + self.random + self.keep
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, not {total:g}")
        return self

    def corrupt(
        self,
        rows: Rows,
        chosen: Chosen,
        vocabulary: Vocabulary,
        draw: Draw,
    ) -> NDArray[np.int32]:
        where = chosen.where
        unit = where if self.unit == "piece" else chosen.unit
        die = draw.named("die").uniform(unit)
        drawn = self._drawn(vocabulary, draw.named("piece"), where)
        shown = np.where(die < self.mask, vocabulary.specials.mask, drawn)
        altered = (die < self.mask + self.random) & (chosen.weight > 0)
        row, slot = np.nonzero(altered)
        pieces = rows.pieces.copy()
        pieces[row, where[row, slot]] = shown[row, slot]
        return pieces

    def _drawn(
        self, vocabulary: Vocabulary, draw: Draw, where: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """A random token for every place."""
        if self.random_from == "unigram":
            return vocabulary.piece_at(draw.uniform(where))
        plain = self.random_from == "non-special"
        tokens = vocabulary.text_tokens if plain else vocabulary.tokens
        return tokens[draw.integers(len(tokens), where)]
