"""How deep, and which sublayers in which order."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from bertwright.axes import Choice
from bertwright.encoder.passage import Halting, Passage


class Depth(Choice):
    """The axis: the sublayers of every block, from first to last, and which of them are one.

    ``sharing`` says what the blocks of a group have in common, the norm that goes with it included:
    nothing, their attention, their feed-forward, or ``all`` (Lan et al. 2020); the ways into and
    out of a bottleneck are each block's own. There are ``groups`` of consecutive blocks. While
    training, each block is left out of a step with the probability ``drop``; elsewhere every
    ``every``-th block runs, which such a model bears (Fan et al. 2020).
    """

    sharing: Literal["none", "all", "attention", "feed-forward"] = "none"
    groups: int = Field(default=1, ge=1, le=1_024)
    drop: float = Field(default=0.0, ge=0.0, lt=1.0)
    every: int = Field(default=1, ge=1, le=1_024)

    runs_all: ClassVar[bool] = True
    """Whether every block runs for every place, but for those that are dropped."""

    def passage(self, width: int) -> Passage:
        """The way of the states of the given width through the blocks."""
        return Passage(self.drop, self.every)

    def operations(self, width: int) -> float:
        """Floating-point operations for each block and token, beside the block's own."""
        return 0.0

    def owner(self, block: int, letter: str) -> int:
        """The block whose sublayer stands in this block under this letter."""
        shared = {"none": "", "all": "sfc", "attention": "s", "feed-forward": "f"}[self.sharing]
        if letter not in shared:
            return block
        orders = self.orders()
        group = block * self.groups // len(orders)
        first = -(-group * len(orders) // self.groups)
        return next(b for b in range(first, block + 1) if letter in orders[b])

    def orders(self) -> list[str]:
        """One string of sublayer letters per block."""
        raise TypeError(f"{type(self).__name__} is an axis, not a depth")


def _known(order: str) -> str:
    if not order or set(order) - {"s", "f"}:
        raise ValueError(f"{order!r} may hold only the letters s (attention), f (feed-forward)")
    return order


class Repeated(Depth):
    """``layers`` times the same block: attention, then feed-forward, or another ``order``."""

    layers: int = Field(default=12, ge=1, le=1_024)
    order: str = "sf"

    @field_validator("order")
    @classmethod
    def _a_block(cls, order: str) -> str:
        if _known(order).count("s") > 1:
            raise ValueError(f"{order!r} holds more than one s: a block has one attention at most")
        return order

    def orders(self) -> list[str]:
        return [self.order] * self.layers


class Stack(Repeated):
    """Layers that all places pass through."""

    kind: Literal["stack"] = "stack"


class HaltingStack(Repeated):
    """At most ``layers`` times the same block, with the same parameters; each place halts by itself
    (Dehghani et al. 2019, section 2.2).

    A place halts where its probabilities to do so come to 1 - ``epsilon``.
    """

    kind: Literal["halting"] = "halting"
    sharing: Literal["none", "all", "attention", "feed-forward"] = "all"
    epsilon: float = Field(default=0.01, gt=0.0, lt=1.0)

    runs_all: ClassVar[bool] = False

    def passage(self, width: int) -> Passage:
        return Halting(width, self.epsilon)

    def operations(self, width: int) -> float:
        return 2 * width


class NoBlocks(Depth):
    """Nothing behind the embeddings: a table of pieces, whatever stands beside them."""

    kind: Literal["none"] = "none"

    def orders(self) -> list[str]:
        return []


class Sandwich(Depth):
    """A stack of ``layers`` whose sublayers are moved: the attention of some of them to the front,
    their feed-forward to the back (Press et al. 2020, section 4: 6 of 16).

    ``outside`` is the share of those layers.
    """

    kind: Literal["sandwich"] = "sandwich"
    layers: int = Field(default=16, ge=1, le=1_024)
    outside: float = Field(default=0.375, ge=0.0, le=1.0)

    def orders(self) -> list[str]:
        moved = round(self.outside * self.layers)
        return list("s" * moved + "sf" * (self.layers - moved) + "f" * moved)


class Sublayers(Depth):
    """Any order of sublayers, one block each: ``ssfsff`` (Press et al. 2020)."""

    kind: Literal["sublayers"] = "sublayers"
    order: str

    @field_validator("order")
    @classmethod
    def _letters(cls, order: str) -> str:
        return _known(order)

    def orders(self) -> list[str]:
        return list(self.order)
