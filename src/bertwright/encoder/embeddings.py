"""Pieces and what is added to them: the input of the first block."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.kernels.lookup import lookup, table
from bertwright.encoder.kernels.noise import Noise, dropout
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import PositionScheme
from bertwright.encoder.roles import Role
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.taps import Site, tap


class EmbeddingChoice(Choice):
    """The axis. ``segments`` is the number of segment types, 0 for none; ``norm`` normalises the
    sum (BERT; not GPT); ``scaled`` multiplies the pieces by the root of the width (Vaswani et al.
    2017, Transformer-XL); ``asking`` has a learned vector for places that ask (XLNet)."""

    segments: int = 0
    norm: bool = True
    scaled: bool = False
    asking: bool = False

    def table_width(self, width: int) -> int:
        """The width of the table of pieces in a model of the given width."""
        return width


class Pieces(EmbeddingChoice):
    """A table of pieces as wide as the model."""

    kind: Literal["pieces"] = "pieces"


class Factorised(EmbeddingChoice):
    """A narrow table and a projection up to the model (Lan et al. 2020).

    Positions, segments and the norm stand at the narrow width, as in ALBERT.
    """

    kind: Literal["factorised"] = "factorised"
    width: int = 128

    def table_width(self, width: int) -> int:
        return self.width


class Embeddings(nn.Module):
    """Tables of pieces and segments; the position scheme's share; norm; dropout; projection.

    ``positions`` is the encoder's scheme: its table, if it has one, is a part of this module.
    """

    parameter_roles: ClassVar[dict[str, Role]] = {"asking": Role("vector")}
    feeds_blocks: ClassVar[bool] = True

    def __init__(
        self,
        choice: EmbeddingChoice,
        norm: Norm,
        positions: PositionScheme,
        width: int,
        vocabulary_size: int,
        rate: float,
    ) -> None:
        super().__init__()
        narrow = choice.table_width(width)
        self.pieces = table(vocabulary_size, narrow)
        self.segments = table(choice.segments, narrow) if choice.segments else None
        self.positions = positions
        self.asking = nn.Parameter(torch.empty(narrow)) if choice.asking else None
        self.scale = narrow**0.5 if choice.scaled else None
        self.join = Join(norm.build(narrow) if choice.norm else nn.Identity(), rate)
        self.up = nn.Linear(narrow, width) if narrow != width else None

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates,
        noise: Noise | None = None,
        site: Site | None = None,
    ) -> Tensor:
        """pieces (B, L) int64 to (B, L, D)."""
        x = tap(site, "pieces", lookup(self.pieces.weight, pieces))
        if self.asking is not None and coordinates.asking is not None:
            x = torch.where(coordinates.asking[..., None], self.asking, x)
        if self.scale is not None:
            x = x * self.scale
        position = self.positions.added(coordinates)
        if position is not None:
            position = tap(site, "positions", position.to(x.dtype))
        segment = self._segment(coordinates)
        if segment is not None:
            segment = tap(site, "segments", segment)
        join = self.join if site is None else self.join.forward
        x = join(x, position, segment, noise, site)
        if self.up is not None:
            x = tap(site, "projection", self.up(x))
        return tap(site, "output", x)

    def _segment(self, coordinates: Coordinates) -> Tensor | None:
        if self.segments is None:
            return None
        if coordinates.segment is None:
            return self.segments.weight[:1]
        return lookup(self.segments.weight, coordinates.segment)


class Join(nn.Module):
    """The sum of what a place is made of, normalised, with dropout."""

    def __init__(self, norm: nn.Module, rate: float) -> None:
        super().__init__()
        self.norm, self.rate = norm, rate

    def forward(
        self,
        pieces: Tensor,
        position: Tensor | None,
        segment: Tensor | None,
        noise: Noise | None = None,
        site: Site | None = None,
    ) -> Tensor:
        """The parts, broadcast to (B, L, D), as one."""
        x = pieces
        if position is not None:
            x = x + position
        if segment is not None:
            x = x + segment
        return dropout(self.norm(tap(site, "sum", x)), self.rate, noise, 0)
