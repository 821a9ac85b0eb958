"""What flows through the encoder.

Legend for shapes: B rows, L places in a row, D width, H heads, d width of a head.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Coordinates:
    """What every place of a batch carries, each (B, L) int64 and present only where asked for.

    ``position`` None means 0..L-1 in every row; ``document`` None means that every place is real
    and a row is one document; padding has document -1. ``place`` is the place in the row, which
    broadcasts to (B, L). ``order`` is the turn of a place in a factorisation of the text.
    ``language`` is a number among those that the encoder knows; None means the first of them.
    ``task`` is the number of the task that is trained; None means the first.
    ``asking`` (bool) marks places that know where they stand and not what stands there: they come
    last in the row, and nobody sees them.
    """

    place: Tensor
    position: Tensor | None = None
    segment: Tensor | None = None
    document: Tensor | None = None
    order: Tensor | None = None
    asking: Tensor | None = None
    language: Tensor | None = None
    task: Tensor | None = None

    @staticmethod
    def plain(pieces: Tensor) -> "Coordinates":
        """The coordinates of rows without padding: one document each."""
        return Coordinates(torch.arange(pieces.shape[1], device=pieces.device)[None])

    @property
    def at(self) -> Tensor:
        """The position of every place, (B or 1, L)."""
        return self.place if self.position is None else self.position

    def queries(self) -> "Coordinates":
        """The coordinates as the asking side: (B, L, 1)."""
        return self._over(-1)

    def keys(self) -> "Coordinates":
        """The coordinates as the asked side: (B, 1, L)."""
        return self._over(-2)

    def _over(self, axis: int) -> "Coordinates":
        parts = (getattr(self, field.name) for field in fields(self))
        return Coordinates(*(None if p is None else p.unsqueeze(axis) for p in parts))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Source:
    """What an encoder has read, for a decoder: states (B, S, D) and their coordinates."""

    states: Tensor
    coordinates: Coordinates

    def select(self, rows: Tensor) -> "Source":
        """These rows (N,) int64 only."""
        parts = (getattr(self.coordinates, field.name) for field in fields(Coordinates))
        chosen = (p if p is None or len(p) == 1 else p.index_select(0, rows) for p in parts)
        return Source(self.states.index_select(0, rows), Coordinates(*chosen))  # type: ignore[arg-type]
