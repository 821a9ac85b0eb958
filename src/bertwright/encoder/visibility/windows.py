"""Windows that grow from block to block, and reach further in some heads by leaving places out."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility.rules import Visibility, Window

Numbers = tuple[Annotated[int, Field(ge=1, le=1 << 20)], ...]


class Windows(Visibility):
    """A window for every block of the encoder, with gaps in some heads (dilated sliding window;
    Beltagy et al. 2020, sections 3.1 and 4.1).

    In block n a place sees ``sizes[n]`` places to each side. The first ``dilated_heads`` heads (all
    where there is no number) see as many, but only every ``dilations[n]``-th, so that they reach as
    many times as far; 1 is a window without gaps. The last of each list holds for all blocks that
    follow. Of heads together, what any of them sees is seen.
    """

    kind: Literal["windows"] = "windows"
    sizes: Numbers = Field(min_length=1)
    dilations: Numbers = Field(default=(1,), min_length=1)
    dilated_heads: int | None = Field(default=None, ge=1, le=4_096)

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        apart = (query.place - key.place).abs()
        seen = (apart <= self._reach) & (apart % self.stride == 0)
        return seen if self.dilated_heads is None else seen | self._near.visible(query, key)

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        touched = self._near.touches(query, key)
        touched = touched if self.dilated_heads is not None else touched & False
        # A place sees those only whose number leaves the same rest.
        for rest in range(self.stride):
            (first, last), (low, high) = (_ends(p.place, self.stride, rest) for p in (query, key))
            touched = touched | ((low <= last + self._reach) & (high >= first - self._reach))
        return touched

    @property
    def stride(self) -> int:
        return self.dilations[0]

    def at_block(self, index: int) -> Visibility:
        size, dilation = (own[min(index, len(own) - 1)] for own in (self.sizes, self.dilations))
        return _plainest(size, dilation, self.dilated_heads)

    def at_head(self, index: int) -> Visibility:
        dilated = self.dilated_heads is None or index < self.dilated_heads
        return _plainest(self.sizes[0], self.stride if dilated else 1)

    @property
    def _reach(self) -> int:
        return self.sizes[0] * self.stride

    @property
    def _near(self) -> Window:
        return Window(size=self.sizes[0])


def _plainest(size: int, dilation: int, dilated_heads: int | None = None) -> Visibility:
    """The rule of one block, by the same name wherever it is the same."""
    if dilation == 1:
        return Window(size=size)
    return Windows(sizes=(size,), dilations=(dilation,), dilated_heads=dilated_heads)


def _ends(place: Tensor, stride: int, rest: int) -> tuple[Tensor, Tensor]:
    """The first and the last place of each group (..., t) that leave a rest; where none does, a
    first that is behind every place and a last before it."""
    one_of_them = place % stride == rest
    first = torch.where(one_of_them, place, _NOWHERE).amin(-1)
    return first, torch.where(one_of_them, place, -_NOWHERE).amax(-1)


_NOWHERE = 1 << 40
