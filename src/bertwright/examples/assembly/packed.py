"""Packed rows: the stream cut every so many places, documents isolated, no padding."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.assembly.layout import Layout
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import Rows
from bertwright.randomness import Counters, integers, key

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class Packed(Assembly):
    """The whole stream in rows that are always full (as Warner et al. 2024 unpad, in one piece).

    Documents lie end to end with [SEP] [CLS] between them; a row is [CLS], the next ``length - 2``
    places of that, [SEP]. Each document of a row sees only itself and counts its positions from 0.
    Every epoch begins at an offset of its own, so documents are cut elsewhere; each piece is used
    once per epoch, except fewer than ``2 * length`` places at the two ends of the stream. A cut
    that falls within a [SEP] [CLS] leaves a lone [CLS], a lone [CLS] [SEP] or a second [SEP] at the
    edge of a row.
    """

    kind: Literal["packed"] = "packed"

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        layout = Layout(split, specials, self.length, isolated=True)
        document_starts = np.asarray(split.document_starts[:-1], np.int64)
        joint = len(layout.joint)
        joint_starts = document_starts + joint * np.arange(len(document_starts))
        num_places = split.num_pieces + joint * (len(document_starts) - 1)
        if num_places < layout.room:
            raise UserError(
                f"the {split.name} split holds {split.num_pieces} pieces, too few for one row of "
                f"length {self.length}: prepare more text or set a smaller length"
            )
        num_rows = max(1, (num_places - layout.room + 1) // layout.room)
        slack = num_places - num_rows * layout.room
        of = key(seed, "assembly", "packed")
        return _PackedRows(layout, document_starts, joint_starts, num_rows, slack, of)


@dataclass(frozen=True, slots=True, eq=False)
class _PackedRows:
    layout: Layout
    document_starts: NDArray[np.int64]
    joint_starts: NDArray[np.int64]
    num_rows: int
    slack: int
    of: int

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        # In the stream with joints, document d begins at joint_starts[d] with a joint; the first
        # row of an epoch begins somewhere after the first joint.
        joint = len(self.layout.joint)
        first = joint + integers(self.of, self.slack + 1, epoch)
        place = first + self.layout.room * index
        document = np.searchsorted(self.joint_starts, place, side="right") - 1
        within = place - self.joint_starts[document]
        start = self.document_starts[document] + np.maximum(within - joint, 0)
        count = np.minimum(self.layout.room, self.layout.split.num_pieces - start)
        return self.layout.rows(start, count, lead=np.maximum(joint - within, 0))
