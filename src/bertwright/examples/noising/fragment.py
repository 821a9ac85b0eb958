"""One fragment of a text is hidden, and the decoder is asked for it (Song et al. 2019)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from bertwright.examples.coordinates import Rows
from bertwright.examples.corruption import Corruption, Replace
from bertwright.examples.noising.noising import Noising, Targets, require_plain
from bertwright.examples.questions import Question
from bertwright.examples.selection import Chosen, num_slots
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

if TYPE_CHECKING:
    from bertwright.text.tokenizers import Specials


class Fragment(Noising):
    """``rate`` of the places of a row, ``least`` at least, one after the other, from a random place
    on; ``corruption`` is what the encoder sees there. The decoder is given the fragment alone, at
    its positions in the text.

    The first piece of it is named without any before it: that one is the encoder's to see.
    """

    kind: Literal["fragment"] = "fragment"
    begins: Literal["pad", "start", "end", "mask"] = "mask"
    rate: float = Field(default=0.5, gt=0.0, le=1.0)
    least: int = Field(default=5, ge=1, le=1 << 20)
    corruption: Corruption = Replace()

    rearranges: ClassVar[bool] = False

    @field_validator("corruption")
    @classmethod
    def _anew(cls, corruption: Corruption) -> Corruption:
        if corruption.when == "static":
            raise ValueError("when: a fragment is drawn anew at every visit: set it to dynamic")
        return corruption

    @property
    def masking_rate(self) -> float:
        return self.rate

    def targets(self, length: int) -> int:
        return max(num_slots(length, self.rate), min(self.least, length))

    def positions(self, length: int) -> int:
        return length

    def first(self, source: Sequence[int], specials: "Specials") -> int:
        return source.index(specials.mask) if specials.mask in source else 0

    def noised(
        self, rows: Rows, vocabulary: Vocabulary, draw: Draw, progress: float
    ) -> tuple[Rows, Question]:
        require_plain(rows)
        text = ~rows.special
        num_text = text.sum(axis=1, keepdims=True)
        slots = self.targets(rows.pieces.shape[1])
        size = np.clip(np.rint(self.rate * num_text).astype(np.int64), self.least, slots)
        size = np.minimum(size, num_text)
        first = draw.named("first").integers(num_text - size + 1)
        rank = np.cumsum(text, axis=1) - 1
        inside = text & (rank >= first) & (rank < first + size)
        chosen = Chosen.listed(np.where(inside, 0, -1), slots)
        shown = self.corruption.corrupt(rows, chosen, vocabulary, draw.named("corruption"))
        own, where = rows.coordinates.position, chosen.where
        targets = Targets(
            np.take_along_axis(rows.pieces, where, 1).astype(np.int64),
            chosen.weight > 0,
            where,
            where if own is None else np.take_along_axis(own, where, 1).astype(np.int64),
        )
        noised = replace(rows, pieces=shown)
        hidden = int(inside.sum()), int(rows.real.sum())
        return noised, self.ask(targets, noised, vocabulary, hidden)
