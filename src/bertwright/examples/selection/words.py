"""Whole words, while they fit."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.selection.choosing import Chosen, Selection, Share
from bertwright.examples.selection.filling import fill_shortfall, whole_units
from bertwright.examples.selection.tokens import Tokens
from bertwright.examples.selection.unspaced import unspaced
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw
from bertwright.schedules import Constant


class WholeWords(Selection):
    """All tokens of a word or none (google-research/bert, May 2019).

    Words are taken in random order while they fit in the budget, which counts tokens; a word that
    would exceed what is left of it is skipped. Where that leaves more than a tenth of the budget,
    single tokens of the skipped words fill it. In text without spaces tokens count as words. Words
    end at special tokens, where the official code glues a continuation token at the start of a
    truncated text to the word before.

    This holds in a fraction ``whole`` of the sequences; in the others tokens are chosen one by one.
    """

    kind: Literal["whole-words"] = "whole-words"
    whole: Share = Field(default=Constant(value=1.0))

    def select(self, rows: Rows, vocabulary: Vocabulary, draw: Draw, progress: float) -> Chosen:
        together = super().select(rows, vocabulary, draw, progress)
        share = self.whole.at(progress)
        if share == 1.0:
            return together
        apart = Tokens(rate=self.rate).select(rows, vocabulary, draw, progress)
        whole = draw.named("whole").uniform(0) < share
        return Chosen(
            np.where(whole, together.where, apart.where),
            np.where(whole, together.weight, apart.weight),
            np.where(whole, together.unit, apart.unit),
        )

    def chosen(
        self,
        rows: Rows,
        vocabulary: Vocabulary,
        draw: Draw,
        number: NDArray[np.int64],
        slots: int,
    ) -> Chosen:
        first, *smaller = self._levels(rows)
        first = np.where(rows.special, -1, first)
        unit = np.where(whole_units(first, number, draw), first, -1)
        return Chosen.listed(fill_shortfall(unit, smaller, rows, draw, number), slots)

    def _levels(self, rows: Rows) -> list[NDArray[Any]]:
        """Units that are chosen whole, the largest first: each array (B, L) numbers the unit of
        every token within its sequence, -1 for special tokens."""
        word = rows.coordinates.word
        if word is None:
            raise UserError(f"selection {self.kind} needs rows that know where words begin")
        begins = np.ones(word.shape, np.bool_)
        begins[:, 1:] = (word[:, 1:] != word[:, :-1]) | rows.special[:, 1:]
        column = np.arange(word.shape[1], dtype=word.dtype)
        return [np.where(unspaced(begins, rows.special) & (word >= 0), column, word)]
