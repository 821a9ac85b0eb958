"""Full rows: the stream cut every so many places, without padding."""

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

    Without ``isolated`` only a [SEP] stands between two documents, which see each other and count
    on (the streams of Radford et al. 2018).
    """

    kind: Literal["packed"] = "packed"
    isolated: bool = True

    @property
    def parted_by(self) -> str | None:
        return "isolated" if self.isolated else None

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        of = key(seed, "assembly", "packed")
        return _planned(Layout(split, specials, self.length, self.isolated), of)


class Contiguous(Assembly):
    """The whole stream in rows that have nothing else; documents are parted by [SEP] alone, or by
    [SEP] [CLS] where they are ``isolated``, which each sees only itself.

    Rows are read in the order of the text: row r of every step goes on where row r of the step
    before it ended, so that a memory over steps is one over the text. The cuts are the same in
    every epoch.
    """

    kind: Literal["contiguous"] = "contiguous"
    isolated: bool = False

    @property
    def in_order(self) -> bool:
        return True

    @property
    def parted_by(self) -> str | None:
        return "isolated" if self.isolated else None

    def opening(self, specials: "Specials") -> int:
        return specials.start if self.isolated else specials.end

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        layout = Layout(split, specials, self.length, self.isolated, framed=False)
        return _planned(layout, None)


def _planned(layout: Layout, of: int | None) -> RowSource:
    """Full rows of a stream; ``of`` is the key of every epoch's offset, None for none."""
    split, joint = layout.split, len(layout.joint)
    document_starts = np.asarray(split.document_starts[:-1], np.int64)
    joint_starts = document_starts + joint * np.arange(len(document_starts))
    num_places = split.num_pieces + joint * (len(document_starts) - 1)
    if num_places < layout.room:
        raise UserError(
            f"the {split.name} split holds {split.num_pieces} pieces, too few for one row of "
            f"length {layout.length}: prepare more text or set a smaller length"
        )
    num_rows = max(1, (num_places - layout.room + 1) // layout.room)
    slack = 0 if of is None else num_places - num_rows * layout.room
    return _PackedRows(layout, document_starts, joint_starts, num_rows, slack, of or 0)


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
