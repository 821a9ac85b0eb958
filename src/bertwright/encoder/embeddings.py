"""Pieces and what is added to them: the input of the first block."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.dropout import Drop
from bertwright.encoder.kernels.lookup import lookup, table
from bertwright.encoder.kernels.noise import Noise, row_dropout
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import PositionScheme
from bertwright.encoder.roles import Role
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.taps import Site, tap


class EmbeddingChoice(Choice):
    """The axis. ``segments`` is the number of segment types, 0 for none; ``languages`` are the
    codes of those that have a vector each, added at every place (XLM); ``tasks`` is how many tasks
    of a training have one, which in use is the first (ERNIE 2.0); ``norm`` normalises the sum
    (BERT; not GPT); ``scaled`` multiplies the pieces by the root of the width (Vaswani et al. 2017,
    Transformer-XL); ``asking`` has a learned vector for places that ask (XLNet); ``row_dropout`` is
    the rate at which pieces are dropped for a whole step (Merity et al. 2018)."""

    segments: int = Field(default=0, ge=0, le=1_024)
    languages: tuple[str, ...] = Field(default=(), max_length=65_536)
    tasks: int = Field(default=0, ge=0, le=1_024)
    norm: bool = True
    scaled: bool = False
    asking: bool = False
    row_dropout: float = Field(default=0.0, ge=0, lt=1)

    one_table: ClassVar[bool] = True
    """Whether the vectors are the rows of one table, which other parts may share."""

    reads_neighbours: ClassVar[bool] = False
    """Whether a place is made of pieces beside its own."""

    def table_width(self, width: int) -> int:
        """The width of the table of pieces in a model of the given width."""
        return width

    def sum_width(self, width: int) -> int:
        """The width at which positions and segments are added."""
        return self.table_width(width)

    def build(self, vocabulary_size: int, width: int) -> nn.Module:
        """A module from pieces (...) int64 to their vectors (..., width)."""
        return table(vocabulary_size, width)

    def joining(self, width: int) -> nn.Module | None:
        """What makes these vectors into what they are added to, if anything does."""
        return None

    def operations(self, width: int) -> float:
        """Floating-point operations per token, where the embeddings are so wide."""
        return 0.0


class Pieces(EmbeddingChoice):
    """A table of pieces as wide as the model."""

    kind: Literal["pieces"] = "pieces"


class Factorised(EmbeddingChoice):
    """A narrow table and a projection up to the model (Lan et al. 2020).

    Positions, segments, languages and the norm stand at the narrow width, as in ALBERT.
    """

    kind: Literal["factorised"] = "factorised"
    width: int = Field(default=128, ge=1, le=65_536)

    def table_width(self, width: int) -> int:
        return self.width

    def operations(self, width: int) -> float:
        return 0.0 if self.width == width else 2 * self.width * width


class Trigrams(EmbeddingChoice):
    """A narrow table; a projection to the width of the model of the next piece, a place's own and
    the one before, side by side (Sun et al. 2020, section 3.1).

    Beyond the ends of a document there is nothing, which counts as zeros.
    """

    kind: Literal["trigrams"] = "trigrams"
    width: int = Field(default=128, ge=1, le=65_536)

    reads_neighbours: ClassVar[bool] = True

    def table_width(self, width: int) -> int:
        return self.width

    def sum_width(self, width: int) -> int:
        return width

    def joining(self, width: int) -> nn.Module:
        return TrigramProjection(self.width, width)

    def operations(self, width: int) -> float:
        return 2 * 3 * self.width * width


class Embeddings(nn.Module):
    """Tables of pieces, segments, languages, tasks; the position scheme's share; norm; dropout;
    projection.

    ``positions`` is the encoder's scheme: its table, if it has one, is a part of this module. All
    of it is made ``width`` wide, and repeated in so many ``copies``.
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
        drop: Drop,
        copies: int = 1,
    ) -> None:
        super().__init__()
        of_table, of_sum = choice.table_width(width), choice.sum_width(width)
        self.pieces = choice.build(vocabulary_size, of_table)
        self.row_rate = choice.row_dropout
        self.joining = choice.joining(width)
        self.segments = table(choice.segments, of_sum) if choice.segments else None
        self.languages = table(len(choice.languages), of_sum) if choice.languages else None
        self.tasks = table(choice.tasks, of_sum) if choice.tasks else None
        self.positions = positions
        self.asking = nn.Parameter(torch.empty(of_table)) if choice.asking else None
        self.scale = of_table**0.5 if choice.scaled else None
        self.join = Join(norm.build(of_sum) if choice.norm else nn.Identity(), drop)
        self.up = nn.Linear(of_sum, width) if of_sum != width else None
        self.copies = copies

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates,
        noise: Noise | None = None,
        site: Site | None = None,
    ) -> Tensor:
        """pieces (B, L) int64 to (B, L, D)."""
        x = row_dropout(self._looked_up(pieces), pieces, self.row_rate, noise, 1)
        x = tap(site, "pieces", x)
        if self.asking is not None and coordinates.asking is not None:
            x = torch.where(coordinates.asking[..., None], self.asking, x)
        if self.scale is not None:
            x = x * self.scale
        if self.joining is not None:
            x = self.joining(x, coordinates)
        parts = {
            "positions": self.positions.added(coordinates),
            "segments": _added(self.segments, coordinates.segment),
            "languages": _added(self.languages, coordinates.language),
            "tasks": _added(self.tasks, coordinates.task),
        }
        added = [tap(site, n, part.to(x.dtype)) for n, part in parts.items() if part is not None]
        join = self.join if site is None else self.join.forward
        x = join(x, added, noise, site)
        if self.up is not None:
            x = tap(site, "projection", self.up(x))
        if self.copies > 1:
            x = x.repeat(1, 1, self.copies)
        return tap(site, "output", x)

    @property
    def table(self) -> Tensor:
        """The table of pieces (V, E); where there is none such, that which their vectors are made
        from first."""
        return next(self.pieces.parameters())

    def _looked_up(self, pieces: Tensor) -> Tensor:
        if isinstance(self.pieces, nn.Embedding):
            return lookup(self.pieces.weight, pieces)
        return self.pieces(pieces)


def _added(rows: nn.Embedding | None, index: Tensor | None) -> Tensor | None:
    """The vectors (B, L, E) of what a table tells apart; those of its first row (1, E) where nobody
    says which is meant, or there is no other."""
    if rows is None:
        return None
    if index is None or len(rows.weight) == 1:
        return rows.weight[:1]
    return lookup(rows.weight, index)


class TrigramProjection(nn.Module):
    """(B, L, E) to (B, L, D): the next, the own and the previous vector, projected."""

    def __init__(self, narrow: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * narrow, width)

    def forward(self, x: Tensor, coordinates: Coordinates) -> Tensor:
        later = nn.functional.pad(x[:, 1:], (0, 0, 0, 1))
        earlier = nn.functional.pad(x[:, :-1], (0, 0, 1, 0))
        document = coordinates.document
        if document is not None:
            goes_on = (document[:, 1:] == document[:, :-1])[..., None]
            later = later * nn.functional.pad(goes_on, (0, 0, 0, 1))
            earlier = earlier * nn.functional.pad(goes_on, (0, 0, 1, 0))
        return self.dense(torch.cat((later, x, earlier), dim=-1))


class Join(nn.Module):
    """The sum of what a place is made of, normalised, with dropout."""

    def __init__(self, norm: nn.Module, drop: Drop) -> None:
        super().__init__()
        self.norm, self.drop = norm, drop

    def forward(
        self,
        x: Tensor,
        added: Sequence[Tensor],
        noise: Noise | None = None,
        site: Site | None = None,
    ) -> Tensor:
        """The parts, broadcast to (B, L, D), as one."""
        for part in added:
            x = x + part
        return self.drop(self.norm(tap(site, "sum", x)), noise, 0)
