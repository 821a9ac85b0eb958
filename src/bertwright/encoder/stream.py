"""What flows through the encoder.

Legend for shapes: B rows, L places in a row, D width, H heads, d width of a head.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

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
    last in the row, and nobody sees them. ``backward`` (bool) marks rows that are read from the end
    of their text, whose positions count down; all rows of a batch that says so are one text each.
    ``extent`` is how many real places the text of a place has, a text beginning where positions do;
    ``measured`` fills it in.
    """

    place: Tensor
    position: Tensor | None = None
    segment: Tensor | None = None
    document: Tensor | None = None
    order: Tensor | None = None
    asking: Tensor | None = None
    language: Tensor | None = None
    task: Tensor | None = None
    backward: Tensor | None = None
    extent: Tensor | None = None

    @staticmethod
    def plain(pieces: Tensor) -> "Coordinates":
        """The coordinates of rows without padding: one document each."""
        return Coordinates(torch.arange(pieces.shape[1], device=pieces.device)[None])

    @property
    def at(self) -> Tensor:
        """The position of every place, (B or 1, L)."""
        return self.place if self.position is None else self.position

    @property
    def is_plain(self) -> bool:
        """Whether a rule can ask nothing of a place but where it is in its row."""
        others = (self.position, self.segment, self.document, self.order, self.asking)
        return all(own is None for own in others)

    @property
    def num_rows(self) -> int:
        """How many rows they tell apart: 1 where all rows are alike."""
        parts = (getattr(self, field.name) for field in fields(self))
        return max(own.shape[0] for own in parts if own is not None)

    def measured(self) -> "Coordinates":
        """These coordinates with ``extent``."""
        if self.extent is not None:
            return self
        real = torch.ones_like(self.place, dtype=torch.bool)
        if self.document is not None:
            real = self.document >= 0
        if self.position is None or self.backward is not None:
            return replace(self, extent=real.sum(-1, keepdim=True).expand_as(real))
        text, real = torch.broadcast_tensors((self.position == 0).cumsum(-1), real)
        counts = text.new_zeros(len(text), text.shape[1] + 1).scatter_add_(1, text, real.long())
        return replace(self, extent=counts.gather(1, text))

    def spoken(self, pieces: Tensor, language: int | None) -> "Coordinates":
        """These coordinates of pieces (B, L) that are all in one language; None leaves it open."""
        if language is None:
            return self
        return replace(self, language=torch.full_like(pieces, language))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Coordinates":
        """These coordinates, all changed in the same way."""
        parts = (getattr(self, field.name) for field in fields(self))
        return Coordinates(*(None if p is None else change(p) for p in parts))  # type: ignore[arg-type]

    def select(self, rows: Tensor) -> "Coordinates":
        """Those of the rows (N,) int64 only."""
        return self.each(lambda own: own if len(own) == 1 else own.index_select(0, rows))

    def queries(self) -> "Coordinates":
        """The coordinates as the asking side: (B, L, 1)."""
        return self.measured().each(lambda own: own.unsqueeze(-1))

    def keys(self) -> "Coordinates":
        """The coordinates as the asked side: (B, 1, L)."""
        return self.measured().each(lambda own: own.unsqueeze(-2))


@dataclass(frozen=True)
class Source:
    """What an encoder has read, for a decoder: states (B, S, D) and their coordinates."""

    states: Tensor
    coordinates: Coordinates

    def select(self, rows: Tensor) -> "Source":
        """These rows (N,) int64 only."""
        return Source(self.states.index_select(0, rows), self.coordinates.select(rows))
