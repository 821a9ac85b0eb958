"""Rows in both directions: half of every step is read from the end of the text.

Let a row hold n places, counted from 0. Read from its end, what stood at p stands at n - 1 - p; it
keeps its position p, so that positions count down. The distance of two places i and j of a reversed
row is then (n - 1 - i) - (n - 1 - j) = -(i - j): the negated distance of these places, as in the
released code of Yang et al. 2019, and that of their pieces in the text. With i - j in its place
every piece would have its neighbours on the wrong side, as in another language.

So an encoder that sees all of a row makes of a reversed one what it makes of the row, but for the
special tokens, which change sides. What is new is the memory: where rows are in the order of the
text, it holds what stands behind them.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationInfo, field_validator

from bertwright.examples.assembly.packed import Contiguous, Packed
from bertwright.examples.assembly.pairs import Pair
from bertwright.examples.assembly.sentences import DocSentences, FullSentences
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import Need, Relation, Rows
from bertwright.randomness import Counters

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class HalfReversed(Assembly):
    """The rows of another assembly, ``of``, of this one's length; the second half of the rows of
    every step are those of the first half, read from their end (``bi_data`` of Yang et al. 2019).

    Special tokens at the ends of a row stay there. Where rows are in the order of the text, the
    halves share stretches of it, and each goes on in its own direction. A step of an odd number of
    rows has one more. What is evaluated is not reversed.
    """

    kind: Literal["half-reversed"] = "half-reversed"
    of: Assembly

    directions: ClassVar[int] = 2

    @field_validator("of")
    @classmethod
    def _rows_of_one_text(cls, of: Assembly, info: ValidationInfo) -> Assembly:
        if of.parted_by:
            raise ValueError(
                f"has rows of several texts, which are not reversed: set {of.parted_by} to false"
            )
        if not isinstance(of, Contiguous | Packed | FullSentences | DocSentences | Pair):
            raise ValueError(
                f"is {of.kind}, whose rows are not reversed: choose contiguous, packed, "  # type: ignore[attr-defined]
                f"full-sentences, doc-sentences, segment-pair or sentence-pair"
            )
        return of.model_copy(update={"length": info.data.get("length", 128)})

    @property
    def in_order(self) -> bool:
        return self.of.in_order

    @property
    def needs(self) -> frozenset[Need]:
        return self.of.needs

    @property
    def relations(self) -> frozenset[Relation]:
        return self.of.relations

    @property
    def evaluated(self) -> Assembly:
        return self.of.model_copy(update={"length": self.length}).evaluated

    def opening(self, specials: "Specials") -> int:
        return self.of.opening(specials)

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        forward = self.of.model_copy(update={"length": self.length}).plan(split, specials, seed)
        return _BothDirections(forward, first=0 if self.of.in_order else 1)


@dataclass(frozen=True, slots=True, eq=False)
class _BothDirections:
    """Rows as they are, then the same rows from their end; text begins at place ``first``."""

    forward: RowSource
    first: int

    @property
    def num_rows(self) -> int:
        return 2 * self.forward.num_rows

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        direction, row = np.divmod(index, self.forward.num_rows)
        return turned(self.forward.rows(row, epoch), direction == 1, self.first)


def turned(rows: Rows, backward: NDArray[np.bool_], first: int) -> Rows:
    """Rows of one text each, padded behind it, those that are ``backward`` (B,) from their end but
    for ``first`` places at either end."""
    place, real, coordinates = np.arange(rows.pieces.shape[1]), rows.real, rows.coordinates
    backward, end = backward[:, None], real.sum(axis=1, keepdims=True)
    position = np.where(backward & real, end - 1 - place, place)
    inside = (place >= first) & (place < end - first)
    source = np.where(inside, position, place)

    def reading(own: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(own, source, axis=1)

    def numbered_anew(number: NDArray[np.int32]) -> NDArray[np.int32]:
        last = number.max(axis=1, keepdims=True)
        return np.where(backward & (number >= 0), last - number, number)

    changed: dict[str, NDArray[np.int32]] = {
        name: reading(own) for name, own in coordinates.present().items() if name != "document"
    }
    changed |= {n: numbered_anew(changed[n]) for n in ("word", "sentence") if n in changed}
    if coordinates.segment is not None:
        # The text that comes first is the first segment, with the token behind it.
        num_first = ((coordinates.segment == 1) & ~rows.special).sum(axis=1, keepdims=True)
        second = ((place > num_first + 1) & real).astype(np.int32)
        changed["segment"] = np.where(backward, second, coordinates.segment)
    if coordinates.language is not None:
        changed["language"] = np.take_along_axis(coordinates.language, position, axis=1)
    changed["position"] = position.astype(np.int32)
    changed["backward"] = np.broadcast_to(backward, real.shape).astype(np.int32)
    special, cut = reading(rows.special), rows.cut
    if cut is not None:
        cut = np.take_along_axis(cut, position, axis=1)
        # What stands between two documents may come to stand right behind the opening.
        cut[:, 1] |= backward[:, 0] & special[:, 1]
    return replace(
        rows,
        pieces=reading(rows.pieces),
        coordinates=replace(coordinates, **changed),
        special=special,
        cut=cut,
    )
