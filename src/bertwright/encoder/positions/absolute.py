"""Where a place stands: added to its embedding, or turned into its queries and keys."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.encoder.kernels.lookup import lookup, table
from bertwright.encoder.positions.scheme import HeadShape, Positions, PositionScheme, Rotation
from bertwright.encoder.stream import Coordinates


class NoPositions(Positions):
    """Order is known only through visibility."""

    kind: Literal["none"] = "none"

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return PositionScheme()


class Learned(Positions):
    """A learned vector per position, added to the embedding (BERT).

    ``offset`` is the row of position 0: RoBERTa's table begins at row 2.
    """

    kind: Literal["learned"] = "learned"
    added: ClassVar[bool] = True
    size: int = Field(default=512, ge=1, le=1 << 20)
    offset: int = Field(default=0, ge=0, le=1 << 20)

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return LearnedPositions(width, self.size, self.offset)


AxialSide = Annotated[int, Field(ge=1, le=65_536)]


class Axial(Positions):
    """A learned vector per position in two parts: one of its row, one of its column, where
    positions are laid out in ``shape`` (Kitaev et al. 2020, as released). A quarter of the width
    is the row's.
    """

    kind: Literal["axial"] = "axial"
    added: ClassVar[bool] = True
    shape: tuple[AxialSide, AxialSide] = (64, 64)

    @property
    def size(self) -> int:
        """How many positions there are."""
        return self.shape[0] * self.shape[1]

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return AxialPositions(width, self.shape)


class Sinusoidal(Positions):
    """Fixed sines and cosines of geometric wavelengths, added to the embedding (Vaswani 2017)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    added: ClassVar[bool] = True
    base: float = Field(default=10000.0, gt=1)

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return SinusoidalPositions(width, self.base)


class EveryBlock(Positions):
    """Sines and cosines of the position, and of the number of the block from 1 on, added to the
    states before every block (Dehghani et al. 2019, section 2.1).

    ``learned`` is how many blocks have a learned vector in the place of their sines; None for none
    (the authors' code has learned ones).
    """

    kind: Literal["every-block"] = "every-block"
    base: float = Field(default=10000.0, gt=1)
    learned: int | None = Field(default=None, ge=1, le=1_024)

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return EveryBlockPositions(shape.width, self)


class Rotary(Positions):
    """Queries and keys are rotated by angles that grow with the position (Su et al. 2021).

    The two halves of a head form the pairs (the layout of stock classes).
    """

    kind: Literal["rotary"] = "rotary"
    base: float = Field(default=10000.0, gt=1)

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return RotaryPositions(shape.head_width, self.base)


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


class AxialPositions(PositionScheme):
    """A table of rows and one of columns."""

    def __init__(self, width: int, shape: tuple[int, int]) -> None:
        super().__init__()
        self.rows = table(shape[0], width // 4)
        self.columns = table(shape[1], width - width // 4)
        self.longest = shape[0] * shape[1]

    def added(self, coordinates: Coordinates) -> Tensor | None:
        position = coordinates.place[0] if coordinates.position is None else coordinates.position
        row = position // len(self.columns.weight)
        column = position % len(self.columns.weight)
        return torch.cat(
            (lookup(self.rows.weight, row), lookup(self.columns.weight, column)), dim=-1
        )


class SinusoidalPositions(PositionScheme):
    """Sines in the even channels, cosines in the odd ones."""

    def __init__(self, width: int, base: float) -> None:
        super().__init__()
        self.width, self.base = width, base

    def added(self, coordinates: Coordinates) -> Tensor | None:
        position = coordinates.place[0] if coordinates.position is None else coordinates.position
        angle = _angles(position, self.width, self.base)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class EveryBlockPositions(PositionScheme):
    """Sines in the even channels, cosines in the odd ones; a table of blocks where they are
    learned."""

    def __init__(self, width: int, choice: EveryBlock) -> None:
        super().__init__()
        self.width, self.base = width, choice.base
        self.table = None if choice.learned is None else table(choice.learned, width)

    def before(self, block: int, coordinates: Coordinates) -> Tensor | None:
        signal = self._waves(coordinates.at)
        if self.table is not None:
            return signal + self.table.weight[block]
        return signal + self._waves(torch.tensor([block + 1], device=signal.device))

    def _waves(self, position: Tensor) -> Tensor:
        steps = torch.arange(0, self.width, 2, dtype=torch.float64, device=position.device)
        angle = position[..., None] * (1.0 / self.base ** (steps / self.width))
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class RotaryPositions(PositionScheme):
    """Rotary position embedding."""

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width, self.base = head_width, base

    def rotation(self, coordinates: Coordinates) -> Rotation | None:
        position = coordinates.at
        angle = _angles(position, self.head_width, self.base)
        angle = torch.cat((angle, angle), dim=-1)[:, None]
        return angle.cos(), angle.sin()


def _angles(position: Tensor, width: int, base: float) -> Tensor:
    steps = torch.arange(0, width, 2, dtype=torch.float32, device=position.device)
    return position[..., None].float() * (1.0 / base ** (steps / width))
