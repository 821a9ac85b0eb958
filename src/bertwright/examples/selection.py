"""Selection: which places of a row are asked about.

The number of places per row, m, depends only on the row's length and the rate, so a step never
changes shape; a row with fewer candidates is filled up with *fillers* of weight 0. As in BERT the
budget of a row is ``round(rate * real places)``, special tokens counted though never chosen, and at
least one.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.axes import Choice
from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.randomness import Draw
from bertwright.schedules import Constant, Value

Places = tuple[NDArray[np.int64], NDArray[np.float32]]

FILLER = 1
"""The place of fillers: not 0, since some read the answer from the place before."""


class Selection(Choice):
    """The axis; ``rate`` is the share of real places that is asked about (BERT: 0.15)."""

    rate: Value = Field(default=Constant(value=0.15))

    def select(self, rows: Rows, rate: float, draw: Draw, slots: int | None = None) -> Places:
        """The chosen places of every row in rising order, and their weights.

        ``slots`` fixes m where the rate varies within a compiled phase. Returns (B, m) int64 and
        (B, m) float32, 0 for fillers.
        """
        raise TypeError(f"{type(self).__name__} is an axis, not a selection")


class Tokens(Selection):
    """Places one by one, uniformly without replacement (Devlin et al. 2019)."""

    kind: Literal["tokens"] = "tokens"

    def select(self, rows: Rows, rate: float, draw: Draw, slots: int | None = None) -> Places:
        length = rows.pieces.shape[1]
        slots = num_slots(length, rate) if slots is None else slots
        order, number = _in_hash_order(~rows.special, draw)
        chosen = np.minimum(_budget(rows, rate, slots), number)
        rank = np.arange(slots)
        where = np.where(rank < chosen, order[:, :slots], length)
        where.sort(axis=1)
        weight = (rank < chosen).astype(np.float32)
        return np.where(rank < chosen, where, FILLER), weight


class WholeWords(Selection):
    """All pieces of a word or none (google-research/bert, May 2019).

    Words are taken in random order while they fit in the budget, which counts pieces; a word that
    would exceed what is left of it is skipped, not cut. Words end at special tokens, where the
    official code glues a continuation piece at the start of a truncated text to the word before.
    """

    kind: Literal["whole-words"] = "whole-words"

    def select(self, rows: Rows, rate: float, draw: Draw, slots: int | None = None) -> Places:
        word = rows.coordinates.word
        if word is None:
            raise UserError("selection whole-words needs rows that know where words begin")
        num_rows, length = word.shape
        slots = num_slots(length, rate) if slots is None else slots
        candidate = (word >= 0) & ~rows.special
        flat = word + length * np.arange(num_rows)[:, None]
        sizes = np.bincount(flat[candidate], minlength=num_rows * length).reshape(word.shape)
        order, _ = _in_hash_order(sizes > 0, draw)
        taken = fill(np.take_along_axis(sizes, order, 1), _budget(rows, rate, slots))
        chosen_word = np.zeros(word.shape, np.bool_)
        np.put_along_axis(chosen_word, order, taken, 1)
        return _listed(candidate & np.take_along_axis(chosen_word, np.maximum(word, 0), 1), slots)


def num_slots(length: int, rate: float) -> int:
    """m: how many places of a row of ``length`` can be asked about at a rate."""
    return max(1, round(rate * length))


def _budget(rows: Rows, rate: float, slots: int) -> NDArray[np.int64]:
    """(B, 1): how many places of each row to ask about."""
    num_real = rows.real.sum(axis=1, keepdims=True)
    return np.clip(np.rint(rate * num_real).astype(np.int64), 1, slots)


def _in_hash_order(
    candidate: NDArray[np.bool_], draw: Draw
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(B, L) columns in random order, candidates first, and the (B, 1) number of candidates.

    The column rides in the low bits of its hash, so that sorting the values sorts the columns.
    """
    columns = np.arange(candidate.shape[1], dtype=np.uint64)
    low = np.uint64((1 << max(1, candidate.shape[1] - 1).bit_length()) - 1)
    hashes = (draw.bits(columns) >> np.uint64(1)) & ~low | columns
    hashes = np.where(candidate, hashes, hashes | np.uint64(1 << 63))
    hashes.sort(axis=1)
    return (hashes & low).astype(np.int64), candidate.sum(axis=1, keepdims=True)


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


def _listed(chosen: NDArray[np.bool_], slots: int) -> Places:
    """The places of a mask (B, L) with at most ``slots`` in a row."""
    where = np.full((len(chosen), slots), FILLER, np.int64)
    weight = np.zeros((len(chosen), slots), np.float32)
    row, column = np.nonzero(chosen)
    rank = np.cumsum(chosen, axis=1)[row, column] - 1
    where[row, rank] = column
    weight[row, rank] = 1.0
    return where, weight
