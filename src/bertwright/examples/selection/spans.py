"""Spans: runs of words, or of tokens, that are masked together.

Both kinds draw a beginning and a length again and again until the budget of a row is spent; all
rows take one turn at a time together.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.selection.choosing import Chosen, Selection, in_hash_order
from bertwright.examples.selection.filling import fill_shortfall
from bertwright.examples.selection.unspaced import unspaced
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

Places = NDArray[np.int64]


class Runs(Selection):
    """What spans and n-grams have in common.

    A run has n of 1 to ``longest`` words with a probability that goes as (1 - ``stop``)^n
    (``geometric``, renormalised, not clipped), as 1/n (``harmonic``) or not at all (``uniform``).
    ``of`` counts tokens in the place of words; so do sequences of text without spaces.
    """

    law: Literal["geometric", "harmonic", "uniform"] = "geometric"
    stop: float = Field(default=0.2, gt=0.0, lt=1.0)
    longest: int = Field(default=10, ge=1, le=30)
    of: Literal["words", "pieces"] = "words"

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of the lengths from 1 to ``longest``."""
        n = np.arange(1, self.longest + 1, dtype=np.float64)
        shape = {"geometric": (1 - self.stop) ** n, "harmonic": 1 / n, "uniform": np.ones_like(n)}
        return shape[self.law] / shape[self.law].sum()

    def chosen(
        self,
        rows: Rows,
        vocabulary: Vocabulary,
        draw: Draw,
        number: NDArray[np.int64],
        slots: int,
    ) -> Chosen:
        first, after = self._words(rows)
        column = np.arange(rows.pieces.shape[1])
        order, beginnings = in_hash_order(
            self._beginnings(rows, first == column), draw.named("begin")
        )
        shares = np.cumsum(self.probabilities)[:-1]
        unit = np.full(rows.pieces.shape, -1, np.int64)
        left = number
        for turn in range(int(beginnings.max(initial=0))):
            anchor = order[:, turn : turn + 1]
            start = np.take_along_axis(first, anchor, 1)
            wanted = np.searchsorted(shares, draw.named("length").uniform(anchor), side="right")
            ends = self._ends(start, after, rows.special)
            end = self._end(start, ends, wanted, unit >= 0, left)
            free = (column >= start) & (column < end) & (unit < 0)
            free &= (turn < beginnings) & (np.take_along_axis(unit, anchor, 1) < 0)
            taken = free & (np.cumsum(free, axis=1) <= left)
            unit = np.where(taken, start, unit)
            left = left - taken.sum(axis=1, keepdims=True)
            if not left.any():
                break
        unit = fill_shortfall(self._together(unit, column), (), rows, draw, number)
        return Chosen.listed(unit, slots)

    def _beginnings(self, rows: Rows, begins: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The places (B, L) that are as likely to have a run begin at their word."""
        raise TypeError(f"{type(self).__name__} does not say where runs begin")

    def _end(
        self,
        start: Places,
        ends: list[Places],
        wanted: Places,
        taken: NDArray[np.bool_],
        left: Places,
    ) -> Places:
        """Where the run that begins at ``start`` (B, 1) ends, given the end of every length."""
        raise TypeError(f"{type(self).__name__} does not say where runs end")

    def _together(self, unit: Places, column: Places) -> Places:
        """The number (B, L) of what a chosen place was chosen with, -1 elsewhere."""
        return unit

    def _words(self, rows: Rows) -> tuple[Places, Places]:
        """Of every place (B, L): where its word begins, and the first place after it."""
        length = rows.pieces.shape[1]
        column = np.broadcast_to(np.arange(length), rows.pieces.shape)
        if self.of == "pieces":
            return column, column + 1
        word = rows.coordinates.word
        if word is None:
            raise UserError("a selection of runs of words needs rows that know where words begin")
        begins = np.ones(word.shape, np.bool_)
        begins[:, 1:] = word[:, 1:] != word[:, :-1]
        begins[:, 1:] |= rows.special[:, 1:] | rows.special[:, :-1]
        begins |= unspaced(begins, rows.special)
        first = np.maximum.accumulate(np.where(begins, column, 0), axis=1)
        after = np.full(word.shape, length, np.int64)
        after[:, :-1] = np.where(begins, column, length)[:, 1:]
        return first, np.minimum.accumulate(after[:, ::-1], axis=1)[:, ::-1]

    def _ends(self, start: Places, after: Places, special: NDArray[np.bool_]) -> list[Places]:
        """The ends (B, 1) of runs of 1 to ``longest`` words; none goes past a special token."""
        last = special.shape[1] - 1
        ends = [np.take_along_axis(after, start, 1)]
        while len(ends) < self.longest:
            end = ends[-1]
            inside = np.minimum(end, last)
            stops = (end > last) | np.take_along_axis(special, inside, 1)
            ends.append(np.where(stops, end, np.take_along_axis(after, inside, 1)))
        return ends


class Spans(Runs):
    """Runs from the word of a random piece on (Joshi et al. 2019, section 3.1).

    The last one is cut where the budget ends, within a word if need be. Runs that touch are one
    where they are ``merged``, else each is a span of its own.
    """

    kind: Literal["spans"] = "spans"
    merged: bool = True

    def _beginnings(self, rows: Rows, begins: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return ~rows.special

    def _end(
        self,
        start: Places,
        ends: list[Places],
        wanted: Places,
        taken: NDArray[np.bool_],
        left: Places,
    ) -> Places:
        return np.choose(wanted, ends)

    def _together(self, unit: Places, column: Places) -> Places:
        if not self.merged:
            return unit
        chosen = unit >= 0
        begins = chosen.copy()
        begins[:, 1:] &= ~chosen[:, :-1]
        run = np.maximum.accumulate(np.where(begins, column, 0), axis=1)
        return np.where(chosen, run, -1)


class NGrams(Runs):
    """Runs of n whole words from a random word on (Lan et al. 2020, section 4.1).

    A run that would exceed the budget, or meet another, is shortened to the words that fit. Where
    that leaves more than a tenth of the budget, single tokens fill it.
    """

    kind: Literal["n-grams"] = "n-grams"
    law: Literal["geometric", "harmonic", "uniform"] = "harmonic"
    longest: int = Field(default=3, ge=1, le=30)

    def _beginnings(self, rows: Rows, begins: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return begins & ~rows.special

    def _end(
        self,
        start: Places,
        ends: list[Places],
        wanted: Places,
        taken: NDArray[np.bool_],
        left: Places,
    ) -> Places:
        covered = np.pad(np.cumsum(taken, axis=1), ((0, 0), (1, 0)))
        before = np.take_along_axis(covered, start, 1)
        found = start
        for n, end in enumerate(ends):
            fits = (end - start <= left) & (np.take_along_axis(covered, end, 1) == before)
            found = np.where(fits & (n <= wanted), end, found)
        return found
