"""How deep, and which sublayers in which order."""

from typing import Literal

from pydantic import field_validator

from bertwright.axes import Choice
from bertwright.encoder.block import SUBLAYERS


class Depth(Choice):
    """The axis: the sublayers of every block, from the first to the last."""

    def orders(self) -> list[str]:
        """One string of sublayer letters per block."""
        raise TypeError(f"{type(self).__name__} is an axis, not a depth")


class Stack(Depth):
    """``layers`` times the same block: attention, then feed-forward."""

    kind: Literal["stack"] = "stack"
    layers: int = 12

    def orders(self) -> list[str]:
        return ["sf"] * self.layers


class Sublayers(Depth):
    """Any order of sublayers, one block each: ``ssfsff`` (Press et al. 2020)."""

    kind: Literal["sublayers"] = "sublayers"
    order: str

    @field_validator("order")
    @classmethod
    def _letters(cls, order: str) -> str:
        if not order or set(order) - set(SUBLAYERS):
            raise ValueError(f"{order!r} may hold only the letters s (attention), f (feed-forward)")
        return order

    def orders(self) -> list[str]:
        return list(self.order)
