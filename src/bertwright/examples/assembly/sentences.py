"""Rows of whole sentences (Liu et al. 2019, section 4.2): FULL-SENTENCES and DOC-SENTENCES.

The cuts are the same in every epoch; every piece is used once per epoch. A sentence longer than a
row is cut where the row ends.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.assembly.chunks import chain, whole_sentences
from bertwright.examples.assembly.layout import Layout
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import Rows
from bertwright.randomness import Counters

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class FullSentences(Assembly):
    """As many whole sentences as fit, across documents, one extra [SEP] where one ends.

    All of a row see each other. The rest of a row is padding.
    """

    kind: Literal["full-sentences"] = "full-sentences"

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        layout = Layout(split, specials, self.length, isolated=False)
        units = whole_sentences(split, layout.room)
        joints = len(layout.joint) * units.document
        following = _greedy(units.starts + joints, units.stops + joints, layout.room)
        return _SentenceRows(layout, _bounds(units.starts[chain(following)], split))


class DocSentences(Assembly):
    """As many whole sentences as fit, up to the end of the document.

    ``packing`` puts consecutive sequences into one row while they fit (next-fit), isolated from
    each other; without it the rest of a row is padding, which is much where documents are short.
    """

    kind: Literal["doc-sentences"] = "doc-sentences"
    packing: bool = False

    @property
    def parted_by(self) -> str | None:
        return "packing" if self.packing else None

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        layout = Layout(split, specials, self.length, isolated=True)
        units = whole_sentences(split, layout.room)
        fitting = _greedy(units.starts, units.stops, layout.room)
        starts = units.starts[chain(np.minimum(fitting, units.after_document()))]
        bounds = _bounds(starts, split)
        if self.packing:
            # Two sequences of one document never fit in one row, so a row's joints are exactly
            # its ends of documents.
            joints = len(layout.joint) * np.arange(len(starts))
            following = _greedy(bounds[:-1] + joints, bounds[1:] + joints, layout.room)
            bounds = _bounds(starts[chain(following)], split)
        return _SentenceRows(layout, bounds)


def _greedy(starts: NDArray[np.int64], stops: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """(U,): the first unit that no longer fits in a row that begins with each unit."""
    return np.searchsorted(stops, starts + room, side="right")


def _bounds(starts: NDArray[np.int64], split: "Split") -> NDArray[np.int64]:
    return np.append(starts, split.num_pieces)


@dataclass(frozen=True, slots=True, eq=False)
class _SentenceRows:
    layout: Layout
    bounds: NDArray[np.int64]

    @property
    def num_rows(self) -> int:
        return len(self.bounds) - 1

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        start = self.bounds[index]
        return self.layout.rows(start, self.bounds[index + 1] - start)
