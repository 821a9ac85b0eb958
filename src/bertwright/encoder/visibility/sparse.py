"""Rules for long rows: a few places that everyone sees, and blocks drawn at random.

A place is counted from the start of its text, which is where positions begin; with ``block`` all is
counted in blocks of so many places.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.encoder.kernels.noise import uniform_at
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility.rules import Both, Either, Visibility
from bertwright.randomness import key as random_key


class Global(Visibility):
    """Some places see everything and are seen by everything (Beltagy et al. 2020): the ``first``
    and the ``last`` so many blocks of each text, those at ``positions``, and those of a
    ``segment``, as a question is, where a text alone is of the first. Which it is hangs on the
    task: :func:`of_segment`."""

    kind: Literal["global"] = "global"
    first: int = Field(default=1, ge=0, le=1 << 20)
    last: int = Field(default=0, ge=0, le=1 << 20)
    positions: tuple[Annotated[int, Field(ge=0, le=1 << 20)], ...] = Field(
        default=(), max_length=65_536
    )
    segment: int | None = Field(default=None, ge=0, le=1)
    block: int = Field(default=1, ge=1, le=1 << 20)

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return self._is(query) | self._is(key)

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        return self._is(query).any(-1) | self._is(key).any(-1)

    def wide(self, places: Coordinates) -> Tensor | None:
        found = self._is(places)
        return found if places.document is None else found & (places.document >= 0)

    @property
    def by_extent(self) -> bool:
        return self.last > 0

    @property
    def tells_segments(self) -> bool:
        return self.segment is not None

    def _is(self, places: Coordinates) -> Tensor:
        own = places.at // self.block
        # What is remembered of a text stands before place 0, and is not its beginning.
        found = (own >= 0) & (own < self.first)
        if self.last:
            found = found | (own > _last_block(places, self.block) - self.last)
        for position in self.positions:
            found = found | (places.at == position)
        if self.segment is not None:
            said = torch.zeros_like(places.at) if places.segment is None else places.segment
            # Padding is of the first segment, and asks nothing.
            real = True if places.document is None else places.document >= 0
            found = found | ((said == self.segment) & real)
        return found


def of_segment(rule: Visibility, segment: int | None) -> Visibility:
    """The rule, whose places that see everything are those of this ``segment`` as well, or of none;
    where it counts them in blocks, or has none, it stays as it is."""
    if isinstance(rule, Both | Either):
        return type(rule)(rules=tuple(of_segment(member, segment) for member in rule.rules))
    if isinstance(rule, Global) and rule.block == 1:
        return rule.model_copy(update={"segment": segment})
    return rule


def segment_of(rule: Visibility) -> int | None:
    """Return the segment whose places see everything; None for none."""
    if isinstance(rule, Both | Either):
        found = (segment_of(member) for member in rule.rules)
        return next((segment for segment in found if segment is not None), None)
    return rule.segment if isinstance(rule, Global) else None


def with_first(rule: Visibility) -> Visibility:
    """Return the rule with its first place global, where it could have such places and has none."""
    if isinstance(rule, Both | Either):
        return type(rule)(rules=tuple(with_first(member) for member in rule.rules))
    if isinstance(rule, Global) and not (rule.first or rule.last or rule.positions):
        return rule.model_copy(update={"first": 1})
    return rule


class RandomBlocks(Visibility):
    """A block of ``block`` places sees ``number`` others, drawn without repetition from those that
    are neither the first, the last, itself nor beside it (Zaheer et al. 2020).

    They depend on ``seed``, on the block of the encoder, on the block of places and on how many
    there are in the text; all heads see the same.
    """

    kind: Literal["random-blocks"] = "random-blocks"
    number: int = Field(default=3, ge=1, le=65_536)
    block: int = Field(default=64, ge=1, le=1 << 20)
    seed: int = Field(default=0, ge=0)
    layer: int = Field(default=0, ge=0, exclude=True)
    """The block of the encoder; it is the encoder that says so, not a recipe."""

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        asked = key.at // self.block
        seen = torch.zeros_like(query.at >= key.at)
        for drawn in self.drawn(query):
            seen = seen | (drawn == asked)
        return seen

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        asked = key.at // self.block
        low, high = asked.amin(-1, keepdim=True), asked.amax(-1, keepdim=True)
        touched = super().touches(query, key) & False
        for drawn in self.drawn(query):
            touched = touched | ((drawn >= low) & (drawn <= high)).any(-1)
        return touched

    @property
    def by_extent(self) -> bool:
        return True

    def at_block(self, index: int) -> Visibility:
        return self.model_copy(update={"layer": index})

    def drawn(self, places: Coordinates) -> list[Tensor]:
        """The blocks that each place sees, as ``number`` tensors like the coordinates; -1 where
        there are no more to draw from."""
        own, last = places.at // self.block, _last_block(places, self.block)
        low, high = (own - 1).clamp(min=1), torch.minimum(own + 1, last - 1)
        near = (high - low + 1).clamp(min=0)
        free = (last - 1 - near).clamp(min=0)
        seed = random_key(self.seed, "random blocks", self.layer)
        picks: list[Tensor] = []
        for turn in range(self.number):
            chance = uniform_at(seed, own * self.number + turn)
            pick = (chance * (free - turn)).long()
            for earlier in picks:
                pick = pick + (pick >= earlier)
            pick = torch.where(turn < free, pick, _NONE)
            # In order, so that the next one steps over each of them.
            picks = list(torch.stack([*picks, pick]).sort(0).values)
        blocks = [pick + 1 + near * (pick + 1 >= low) for pick in picks]
        return [torch.where(pick == _NONE, -1, b) for pick, b in zip(picks, blocks, strict=True)]


_NONE = 1 << 40
"""A pick beyond all others."""


class Short(Visibility):
    """Every place sees every place in a text of at most ``length`` places: where blocks would save
    nothing (the released code of Zaheer et al. 2020)."""

    kind: Literal["short"] = "short"
    length: int = Field(ge=1, le=1 << 20)

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return self._is(query) & self._is(key)

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        return self._is(query).any(-1) & self._is(key).any(-1)

    @property
    def by_extent(self) -> bool:
        return True

    def _is(self, places: Coordinates) -> Tensor:
        assert places.extent is not None
        return places.extent <= self.length


def _last_block(places: Coordinates, block: int) -> Tensor:
    assert places.extent is not None, "rules are asked of coordinates that are measured"
    return (places.extent - 1) // block
