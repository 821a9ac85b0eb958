"""How a place knows where it is: added to the embeddings, or turned into the queries and keys."""

from typing import Literal

import torch
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.kernels.lookup import lookup, table
from bertwright.encoder.stream import Coordinates

Rotation = tuple[Tensor, Tensor]


class Positions(Choice):
    """The axis."""

    def build(self, width: int, head_width: int) -> "PositionScheme":
        """The module that carries this scheme."""
        raise TypeError(f"{type(self).__name__} is an axis, not a scheme of positions")


class NoPositions(Positions):
    """Order is known only through visibility."""

    kind: Literal["none"] = "none"

    def build(self, width: int, head_width: int) -> "PositionScheme":
        return PositionScheme()


class Learned(Positions):
    """A learned vector per position, added to the embedding (BERT).

    ``offset`` is the row of position 0: RoBERTa's table begins at row 2.
    """

    kind: Literal["learned"] = "learned"
    size: int = 512
    offset: int = 0

    def build(self, width: int, head_width: int) -> "PositionScheme":
        return LearnedPositions(width, self.size, self.offset)


class Sinusoidal(Positions):
    """Fixed sines and cosines of geometric wavelengths, added to the embedding (Vaswani 2017)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: float = 10000.0

    def build(self, width: int, head_width: int) -> "PositionScheme":
        return SinusoidalPositions(width, self.base)


class Rotary(Positions):
    """Queries and keys are rotated by angles that grow with the position (Su et al. 2021).

    The two halves of a head form the pairs (the layout of stock classes).
    """

    kind: Literal["rotary"] = "rotary"
    base: float = 10000.0

    def build(self, width: int, head_width: int) -> "PositionScheme":
        return RotaryPositions(head_width, self.base)


class PositionScheme(nn.Module):
    """What a scheme may give: a vector to add, a rotation of queries and keys, or nothing."""

    longest: int | None = None

    def added(self, coordinates: Coordinates) -> Tensor | None:
        """Vectors (L or B x L, D) to add to the embeddings."""
        return None

    def rotation(self, coordinates: Coordinates) -> Rotation | None:
        """Cosines and sines, each (1 or B, 1, L, d), in float32."""
        return None


class LearnedPositions(PositionScheme):
    """A table of positions."""

    def __init__(self, width: int, size: int, offset: int) -> None:
        super().__init__()
        self.table = table(size + offset, width)
        self.offset, self.longest = offset, size

    def added(self, coordinates: Coordinates) -> Tensor | None:
        if coordinates.position is None:
            length = coordinates.place.shape[-1]
            return self.table.weight[self.offset : self.offset + length]
        return lookup(self.table.weight, coordinates.position + self.offset)


class SinusoidalPositions(PositionScheme):
    """Sines in the even channels, cosines in the odd ones."""

    def __init__(self, width: int, base: float) -> None:
        super().__init__()
        self.width, self.base = width, base

    def added(self, coordinates: Coordinates) -> Tensor | None:
        position = coordinates.place[0] if coordinates.position is None else coordinates.position
        angle = _angles(position, self.width, self.base)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class RotaryPositions(PositionScheme):
    """Rotary position embedding."""

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width, self.base = head_width, base

    def rotation(self, coordinates: Coordinates) -> Rotation | None:
        position = coordinates.place if coordinates.position is None else coordinates.position
        angle = _angles(position, self.head_width, self.base)
        angle = torch.cat((angle, angle), dim=-1)[:, None]
        return angle.cos(), angle.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate queries or keys x (B, H, L, d) by a rotation (1 or B, 1, L, d)."""
    cosine, sine = rotation
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    first, second = wide.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (wide * cosine + turned * sine).to(x.dtype)


def _angles(position: Tensor, width: int, base: float) -> Tensor:
    steps = torch.arange(0, width, 2, dtype=torch.float32, device=position.device)
    return position[..., None].float() * (1.0 / base ** (steps / width))
