"""Whole words, while they fit."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.selection.choosing import Chosen, Selection, Share, in_hash_order
from bertwright.examples.selection.tokens import Tokens
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw
from bertwright.schedules import Constant


class WholeWords(Selection):
    """All pieces of a word or none (google-research/bert, May 2019).

    Words are taken in random order while they fit in the budget, which counts pieces; a word that
    would exceed what is left of it is skipped, not cut. Words end at special tokens, where the
    official code glues a continuation piece at the start of a truncated text to the word before.

    So it is in a share ``whole`` of the rows; in the others pieces are chosen one by one.
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
        word = self._units(rows)
        num_rows, length = word.shape
        candidate = (word >= 0) & ~rows.special
        flat = word + length * np.arange(num_rows)[:, None]
        sizes = np.bincount(flat[candidate], minlength=num_rows * length).reshape(word.shape)
        order, _ = in_hash_order(sizes > 0, draw)
        taken = fill(np.take_along_axis(sizes, order, 1), number)
        chosen_word = np.zeros(word.shape, np.bool_)
        np.put_along_axis(chosen_word, order, taken, 1)
        chosen = candidate & np.take_along_axis(chosen_word, np.maximum(word, 0), 1)
        return Chosen.listed(np.where(chosen, word, -1), slots)

    def _units(self, rows: Rows) -> NDArray[np.int32]:
        """The number (B, L) within its row of what a place is chosen with, -1 where none is."""
        word = rows.coordinates.word
        if word is None:
            raise UserError(f"selection {self.kind} needs rows that know where words begin")
        return word


def fill(sizes: NDArray[Any], budget: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which items (B, W), in their order, fit in a budget (B, 1) when misfits are skipped.

    Each round takes all items up to the first misfit. An item that does not fit now never will, so
    every round but the last takes at least one more item, and few rounds are needed.
    """
    taken = np.zeros(sizes.shape, np.bool_)
    left = budget
    while (open_items := (sizes > 0) & (sizes <= left) & ~taken).any():
        filled = np.cumsum(np.where(open_items, sizes, 0), axis=1)
        taken |= open_items & (filled <= left)
        left = budget - np.where(taken, sizes, 0).sum(axis=1, keepdims=True)
    return taken
