"""What flows through the encoder.

Legend for shapes: B rows, L places in a row, D width, H heads, d width of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Coordinates:
    """What every place of a batch carries, each (B, L) int64 and present only where asked for.

    ``position`` None means 0..L-1 in every row; ``document`` None means that every place is real
    and a row is one document; padding has document -1. ``place`` is the place in the row, which
    broadcasts to (B, L).
    """

    place: Tensor
    position: Tensor | None = None
    segment: Tensor | None = None
    document: Tensor | None = None

    @staticmethod
    def plain(pieces: Tensor) -> "Coordinates":
        """The coordinates of rows without padding: one document each."""
        return Coordinates(torch.arange(pieces.shape[1], device=pieces.device)[None])

    def queries(self) -> "Coordinates":
        """The coordinates as the asking side: (B, L, 1)."""
        return self._over(-1)

    def keys(self) -> "Coordinates":
        """The coordinates as the asked side: (B, 1, L)."""
        return self._over(-2)

    def _over(self, axis: int) -> "Coordinates":
        parts = (self.place, self.position, self.segment, self.document)
        return Coordinates(*(None if p is None else p.unsqueeze(axis) for p in parts))  # type: ignore[arg-type]
