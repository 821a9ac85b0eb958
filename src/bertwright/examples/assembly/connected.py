"""Two sentences that a connective joined, which is taken away (Sileo et al. 2019)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.assembly.connectives import ENGLISH, Connectives, Openings, openings
from bertwright.examples.assembly.pair_layout import PairLayout, Texts, longest_first
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import RELATIONS, Need, Relation, Rows
from bertwright.randomness import Counters

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class ConnectedPair(Assembly):
    """[CLS] A [SEP] B [SEP], where B follows A and began with one of ``connectives``, which is not
    shown (Sileo et al. 2019).

    The connectives that are found take turns, so that each is the answer equally often, as in their
    data; the pairs of one take turns, too, so those of a rare one come back more often. Of a pair
    that is too long the longer sentence is cut until both fit: A loses its first pieces, B its
    last, so that what was joined stays.
    """

    kind: Literal["connected-pair"] = "connected-pair"
    connectives: Connectives = ENGLISH

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"connectives"})

    @property
    def relations(self) -> frozenset[Relation]:
        return frozenset({"next"})

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        found = openings(split, self.connectives, specials.unknown)
        if not len(found.sentence):
            raise UserError(
                f"the {split.name} split holds no sentence that begins with a connective, such as "
                f"{self.connectives[0]!r}: state connectives of its language, or prepare more text"
            )
        order = np.argsort(found.which, kind="stable")
        found = Openings(found.sentence[order], found.which[order], found.taken[order])
        first = np.flatnonzero(np.diff(found.which, prepend=-1))
        bounds = np.append(first, len(order))
        return _ConnectedRows(PairLayout(split, specials, self.length), found, bounds)


@dataclass(frozen=True, slots=True, eq=False)
class _ConnectedRows:
    """``found``: the pairs, by connective; ``bounds`` (C + 1,): the first pair of each that is
    found."""

    layout: PairLayout
    found: Openings
    bounds: NDArray[np.int64]

    @property
    def num_rows(self) -> int:
        return len(self.found.sentence)

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        num_connectives = len(self.bounds) - 1
        turns = -(-self.num_rows // num_connectives)
        turn, of = np.divmod(index, num_connectives)
        turn = turn + turns * np.asarray(epoch).astype(np.int64)
        pair = self.bounds[of] + turn % np.diff(self.bounds)[of]
        sentence, taken = self.found.sentence[pair], self.found.taken[pair]
        starts = self.layout.split.sentence_starts
        begin_a, begin_b, end = starts[sentence - 1], starts[sentence] + taken, starts[sentence + 1]
        num_a, num_b = longest_first(starts[sentence] - begin_a, end - begin_b, self.layout.room)
        a, b = Texts(starts[sentence] - num_a, num_a), Texts(begin_b, num_b)
        rows = self.layout.rows(a, b, np.full(len(index), RELATIONS.index("next"), np.int64))
        connective = np.full(rows.pieces.shape, -1, np.int32)
        connective[np.arange(len(index)), self.layout.start_of_b(a)] = self.found.which[pair]
        return replace(rows, coordinates=replace(rows.coordinates, connective=connective))
