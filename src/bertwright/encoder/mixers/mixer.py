"""The axis of mixers: how places exchange information."""

from typing import ClassVar

from pydantic import Field
from torch import nn

from bertwright.axes import Choice
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import HeadShape, Positions
from bertwright.encoder.visibility import Tiling, Visibility


class Mixer(Choice):
    """The axis: how places exchange information."""

    any_rule: ClassVar[bool] = True
    """Whether every rule of visibility can be kept, not only all and all that stands before."""

    remembers: ClassVar[bool] = False
    """Whether what came before the row can be seen as well."""

    recurrent: ClassVar[bool] = False
    """Whether a text is read place by place, so that a rule of visibility must be a way to read."""

    def shape(self, width: int) -> HeadShape:
        """The heads that a scheme of positions serves, in a model of the given width."""
        return HeadShape(1, width, width)

    def operations(self, width: int, length: int) -> tuple[float, float]:
        """Floating-point operations per token: those that do not depend on the length of a row, and
        those that do."""
        raise TypeError(f"{type(self).__name__} is an axis, not a mixer")

    def takes(self, positions: Positions) -> bool:
        """Whether what a scheme of positions says of distances can enter the scores."""
        return not positions.by_distance

    @property
    def caches(self) -> bool:
        """Whether a row can be read in parts: keys and values of places stay what they are when
        others come behind them."""
        return False

    @property
    def asks_wide(self) -> bool:
        """Whether it is told which places see everything."""
        return False

    @property
    def tiling(self) -> Tiling:
        """Whether rules are laid out in tiles for it."""
        return "never"

    @property
    def drops(self) -> bool:
        """Whether anything inside is dropped while training."""
        return getattr(self, "dropout", 0.0) > 0.0

    draws: ClassVar[bool] = False
    """Whether anything else inside is drawn by chance while training."""

    def build(self, width: int, positions: Positions, norm: Norm) -> nn.Module:
        """A module from (B, L, width) to (B, L, width)."""
        raise TypeError(f"{type(self).__name__} is an axis, not a mixer")

    def widths(self, entry: int, width: int, num_blocks: int) -> list[int]:
        """How wide the states are before, between and after the blocks, where the embeddings are
        ``entry`` wide and the model ``width``: all alike, unless a mixer can widen them."""
        return [width] * (num_blocks + 1)

    def operations_between(
        self, reads: int, writes: int, parts: int, length: int
    ) -> tuple[float, float]:
        """The operations of a sublayer that reads and writes so wide, in so many parts."""
        return self.operations(writes, length)

    def build_between(
        self, reads: int, writes: int, positions: Positions, norm: Norm, rule: Visibility
    ) -> nn.Module:
        """The module of a sublayer that reads and writes so wide."""
        return self.build(writes, positions, norm)


class InHeads(Mixer):
    """What mixers of several heads have in common: their number is ``heads``, or else the width
    divided by ``head_width``."""

    heads: int | None = Field(default=None, ge=1, le=4_096)
    head_width: int = Field(default=64, ge=1, le=65_536)
    bias: bool = True

    def shape(self, width: int) -> HeadShape:
        heads = self.heads or max(1, width // self.head_width)
        if width % heads:
            raise ValueError(f"a width of {width} cannot be shared by {heads} heads")
        return HeadShape(heads, width // heads, width)
