"""A random partition: spans whose lengths are drawn all at once (Raffel et al. 2020).

The places that are chosen, and those between them, are cut into the same number of runs, at least
one place each, every way of cutting being as likely as the others; then the runs take turns,
beginning with one that is left alone.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.examples.coordinates import Rows
from bertwright.examples.selection.choosing import Chosen, Selection, in_hash_order
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

Places = NDArray[np.int64]


class Partition(Selection):
    """Spans of ``mean`` places on average.

    A span may reach across a special token, which is not chosen.
    """

    kind: Literal["partition"] = "partition"
    mean: float = Field(default=3.0, ge=1.0, le=1_024)

    def num_spans(self, num_chosen: int) -> int:
        """How many spans so many places make."""
        return max(1, round(num_chosen / self.mean))

    def chosen(
        self,
        rows: Rows,
        vocabulary: Vocabulary,
        draw: Draw,
        number: NDArray[np.int64],
        slots: int,
    ) -> Chosen:
        length = rows.pieces.shape[1]
        text = ~rows.special
        num_text = text.sum(axis=1, keepdims=True)
        chosen = np.clip(np.minimum(number, num_text - 1), 0, None)
        spans = np.clip(np.rint(chosen / self.mean).astype(np.int64), 1, None)
        spans = np.minimum(spans, np.minimum(chosen, num_text - chosen))
        run = _cut(chosen, spans, length, draw.named("chosen"))
        gap = _cut(num_text - chosen, spans, length, draw.named("between"))
        # A chosen place has all chosen ones before it, and the runs between up to its own.
        widths = np.zeros((len(text), length + 1), np.int64)
        np.add.at(widths, (np.arange(len(text))[:, None], np.where(gap >= 0, gap, length)), 1)
        between = np.cumsum(widths[:, :-1], axis=1)
        row, nth = np.nonzero(run >= 0)
        rank = nth + between[row, run[row, nth]]
        places = np.argsort(~text, axis=1, kind="stable")
        unit = np.full(text.shape, -1, np.int64)
        unit[row, places[row, rank]] = run[row, nth]
        return Chosen.listed(unit, slots)


def _cut(number: Places, runs: Places, length: int, draw: Draw) -> Places:
    """The run (B, L) of each of ``number`` (B, 1) things that are cut into ``runs`` (B, 1), -1
    beyond them."""
    column = np.arange(length)
    joint = np.broadcast_to((column > 0) & (column < number), (len(number), length))
    order, _ = in_hash_order(joint, draw)
    starts = np.zeros(joint.shape, np.int64)
    np.put_along_axis(starts, order, (column < runs - 1).astype(np.int64), axis=1)
    return np.where(column < number, np.cumsum(starts, axis=1), -1)
