"""The assembly axis, and what every assembly plans."""

from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.axes import Choice
from bertwright.examples.coordinates import Need, Relation, Rows
from bertwright.randomness import Counters

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class RowSource(Protocol):
    """Rows by index: the same row whenever, wherever and beside whatever it is asked for."""

    @property
    def num_rows(self) -> int:
        """Rows in one epoch."""
        ...

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        """Rows ``index`` (B,), each in [0, num_rows), as they are in ``epoch``, a number or (B,).

        A pure function of (seed, epoch, index).
        """
        ...


class Assembly(Choice):
    """The axis; every row has exactly ``length`` places, special tokens and padding included."""

    length: int = Field(default=128, ge=8, le=1 << 20)

    directions: ClassVar[int] = 1
    """In how many directions the rows of a step are read: equal parts of the step, the same rows in
    each."""

    @property
    def in_order(self) -> bool:
        """Whether row r of a step goes on where row r of the step before it ended."""
        return False

    @property
    def needs(self) -> frozenset[Need]:
        """What it reads that not every data set has."""
        return frozenset()

    @property
    def relations(self) -> frozenset[Relation]:
        """What the texts of its rows may be to each other, where they have several."""
        return frozenset()

    @property
    def parted_by(self) -> str | None:
        """The setting by which a row has several texts that do not see each other; None where it
        has not."""
        return None

    @property
    def evaluated(self) -> "Assembly":
        """The assembly of held-out text: the same, unless only some of its rows are asked for."""
        return self

    def opening(self, specials: "Specials") -> int:
        """The piece that stands before a document at the beginning of a row."""
        return specials.start

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        """Cut a split into rows, once; what changes from epoch to epoch is drawn from ``seed``."""
        raise TypeError(f"{type(self).__name__} is an axis, not an assembly")
