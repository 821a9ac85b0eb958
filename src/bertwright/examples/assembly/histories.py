"""Histories of users, in windows: the rows of sequential recommendation (Sun et al. 2019)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bertwright.errors import UserError
from bertwright.examples.assembly.layout import read
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import Coordinates, Need, Rows
from bertwright.randomness import Counters

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class ItemHistory(Assembly):
    """Items alone, in the order of time, from the left; the rest of a row is padding.

    A history that is longer than a row has windows: its last ``length`` items, and as many again
    from ``step`` of a row earlier, and so on, until the first item. In one epoch every window
    stands ``windows`` times, each time with masks of its own, and the last window of every user
    ``last`` more times, with nothing to be chosen but its last item, as it is asked for in use.
    """

    kind: Literal["item-history"] = "item-history"
    step: float = Field(default=0.5, gt=0.0, le=1.0)
    windows: int = Field(default=10, ge=0, le=1 << 20)
    last: int = Field(default=1, ge=0, le=1 << 20)

    @model_validator(mode="after")
    def _some_rows(self) -> Self:
        if not self.windows + self.last:
            raise ValueError("windows and last must not both be 0")
        return self

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"histories"})

    @property
    def evaluated(self) -> Assembly:
        return self.model_copy(update={"windows": 0, "last": 1})

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        first = np.asarray(split.document_starts[:-1], np.int64)
        sizes = np.diff(split.document_starts)
        first, sizes = first[sizes > 1], sizes[sizes > 1]
        if not len(sizes):
            raise UserError(f"the {split.name} split holds no history of two items: prepare more")
        step = max(1, round(self.step * self.length))
        number = 1 + np.maximum(-(-(sizes - self.length) // step), 0)
        user = np.repeat(np.arange(len(sizes)), number)
        back = np.arange(len(user)) - np.repeat(np.cumsum(number) - number, number)
        start = first[user] + np.maximum(sizes[user] - self.length - back * step, 0)
        count = np.minimum(sizes[user], self.length)
        is_last = np.flatnonzero(back == 0)
        row = np.concatenate([np.tile(np.arange(len(user)), self.windows)] + [is_last] * self.last)
        whole = len(user) * self.windows
        return _HistoryRows(self.length, split, specials.pad, start[row], count[row], whole)


@dataclass(frozen=True, slots=True, eq=False)
class _HistoryRows:
    """``start`` and ``count`` (R,) of every row; of those from ``whole`` on only the last item is
    asked for."""

    length: int
    split: "Split"
    padding: int
    start: NDArray[np.int64]
    count: NDArray[np.int64]
    whole: int

    @property
    def num_rows(self) -> int:
        return len(self.start)

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        count = self.count[index][:, None]
        pieces, _ = read(self.split, self.start[index], self.length)
        place = np.broadcast_to(np.arange(self.length, dtype=np.int32), pieces.shape)
        text = place < count
        only_last = (index >= self.whole)[:, None] & (place != count - 1)
        coordinates = Coordinates(
            document=np.where(text, np.int32(0), np.int32(-1)),
            word=np.where(text, place, np.int32(-1)),
        )
        shown = np.where(text, pieces, np.int32(self.padding))
        return Rows(shown, coordinates, ~text | only_last)
