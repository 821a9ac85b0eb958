"""Selection: which places of a row are asked about.

The number of places per row, m, depends only on the row's length and the rate, so a step never
changes shape; a row with fewer candidates is filled up with *fillers* of weight 0. As in BERT the
budget of a row is ``round(rate * real places)``, special tokens counted though never chosen, and at
least one.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from bertwright.axes import Choice
from bertwright.examples.coordinates import Need, Rows
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw
from bertwright.schedules import Constant, Schedule, Value

FILLER = 1
"""The place of fillers: not 0, since some read the answer from the place before."""


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The places of every row that are asked about, in rising order.

    - ``where``: (B, m) int64, places in the row
    - ``weight``: (B, m) float32, 0 for fillers
    - ``unit``: (B, m) int64, the same number for what was chosen together: a word, a span
    """

    where: NDArray[np.int64]
    weight: NDArray[np.float32]
    unit: NDArray[np.int64]

    @staticmethod
    def listed(unit: NDArray[np.int64], slots: int) -> "Chosen":
        """The places whose ``unit`` (B, L) is not -1, at most ``slots`` in a row."""
        where = np.full((len(unit), slots), FILLER, np.int64)
        weight = np.zeros((len(unit), slots), np.float32)
        row, column = np.nonzero(unit >= 0)
        rank = np.cumsum(unit >= 0, axis=1)[row, column] - 1
        where[row, rank] = column
        weight[row, rank] = 1.0
        return Chosen(where, weight, np.take_along_axis(unit, where, axis=1))


def _from_0_to_1(share: Schedule) -> Schedule:
    lowest, highest = share.extremes()
    if lowest < 0.0 or highest > 1.0:
        raise ValueError(f"is a share, from 0 to 1, not {lowest if lowest < 0.0 else highest:g}")
    return share


Share = Annotated[Value, AfterValidator(_from_0_to_1)]


class Selection(Choice):
    """The axis; ``rate`` is the share of real places that is asked about (BERT: 0.15)."""

    rate: Share = Field(default=Constant(value=0.15))

    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it reads that not every data set has."""

    @property
    def highest_rate(self) -> float:
        """The most that is chosen at any progress."""
        return self.rate.extremes()[1]

    def slots(self, length: int) -> int:
        """m, of rows of a length: what there is room for at any progress."""
        return num_slots(length, self.highest_rate)

    def select(self, rows: Rows, vocabulary: Vocabulary, draw: Draw, progress: float) -> Chosen:
        """The chosen places of every row, at a ``progress`` of the training from 0 to 1."""
        slots = self.slots(rows.pieces.shape[1])
        number = budget(rows, self.rate.at(progress), slots)
        return self.chosen(rows, vocabulary, draw, number, slots)

    def chosen(
        self,
        rows: Rows,
        vocabulary: Vocabulary,
        draw: Draw,
        number: NDArray[np.int64],
        slots: int,
    ) -> Chosen:
        """At most ``number`` (B, 1) places of every row, in ``slots`` of it."""
        raise TypeError(f"{type(self).__name__} is an axis, not a selection")


def num_slots(length: int, rate: float) -> int:
    """m: how many places of a row of ``length`` can be asked about at a rate."""
    return max(1, round(rate * length))


def budget(rows: Rows, rate: float, slots: int) -> NDArray[np.int64]:
    """(B, 1): how many places of each row to ask about."""
    num_real = rows.real.sum(axis=1, keepdims=True)
    return np.clip(np.rint(rate * num_real).astype(np.int64), 1, slots)


def in_hash_order(
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
