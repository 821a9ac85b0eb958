"""Pieces by their characters: a convolution over the spelling of each (Kim et al. 2016)."""

from typing import Annotated, ClassVar, Literal, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.encoder.embeddings import EmbeddingChoice
from bertwright.encoder.kernels.lookup import lookup, table
from bertwright.encoder.roles import Role
from bertwright.text.spelling import NUM_CHARACTERS

OPEN = -2.0
"""Added to the gate of a highway, so that it begins by letting nearly all of its input through."""


FilterSize = Annotated[int, Field(ge=1, le=65_536)]


class Characters(EmbeddingChoice):
    """Filters over the characters of a piece, the largest answer of each, highways, a projection
    (Jozefowicz et al. 2016; the sizes are those of Peters et al. 2018).

    ``filters`` are pairs of a width, in characters, and a number; no more than ``longest``
    characters of a piece are read. Nothing is tied to such a table.
    """

    kind: Literal["characters"] = "characters"
    longest: int = Field(default=50, ge=3, le=1_024)
    character_width: int = Field(default=16, ge=1, le=65_536)
    filters: tuple[tuple[FilterSize, FilterSize], ...] = Field(
        default=((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        min_length=1,
        max_length=64,
    )
    highways: int = Field(default=2, ge=0, le=64)

    one_table: ClassVar[bool] = False

    @model_validator(mode="after")
    def _as_wide_as_what_is_read(self) -> Self:
        if self.longest < (wide := max(wide for wide, _ in self.filters)):
            raise ValueError(f"longest is {self.longest}, and a filter reads {wide} characters")
        return self

    def build(self, vocabulary_size: int, width: int) -> nn.Module:
        return CharacterTable(self, vocabulary_size, width)

    def operations(self, width: int) -> float:
        """Of a piece that is not among those before it; others are made already."""
        joined = sum(number for _, number in self.filters)
        found = sum(
            2 * (self.longest - wide + 1) * wide * self.character_width * number
            for wide, number in self.filters
        )
        return found + self.highways * 4 * joined**2 + 2 * joined * width


class CharacterTable(nn.Module):
    """The vectors of pieces; ``spelling`` (V, C) int16 is stored with the parameters."""

    def __init__(self, choice: Characters, vocabulary_size: int, width: int) -> None:
        super().__init__()
        joined = sum(number for _, number in choice.filters)
        inner = choice.character_width
        self.register_buffer(
            "spelling", torch.zeros(vocabulary_size, choice.longest, dtype=torch.int16)
        )
        self.characters = table(NUM_CHARACTERS, inner)
        self.filters = nn.ModuleList(nn.Linear(inner * w, n) for w, n in choice.filters)
        self.highways = nn.ModuleList(Highway(joined) for _ in range(choice.highways))
        self.projection = nn.Linear(joined, width)

    def spell(self, characters: NDArray[np.int16]) -> None:
        """Say how every piece is written: (V, C)."""
        cast(Tensor, self.spelling).copy_(torch.from_numpy(characters))

    def forward(self, pieces: Tensor) -> Tensor:
        """pieces (...) int64 to (..., E); each is made once, however often it stands there."""
        different, place = torch.unique(pieces, return_inverse=True)
        return lookup(self._made(cast(Tensor, self.spelling)[different].long()), place)

    def _made(self, characters: Tensor) -> Tensor:
        """characters (N, C) to (N, E)."""
        x = lookup(self.characters.weight, characters).transpose(1, 2)
        found: list[Tensor] = []
        for each in self.filters:
            linear = cast(nn.Linear, each)
            kernel = linear.weight.view(len(linear.weight), x.shape[1], -1)
            found.append(F.relu(F.conv1d(x, kernel, linear.bias).amax(2)))
        joined = torch.cat(found, dim=1)
        for highway in self.highways:
            joined = highway(joined)
        return self.projection(joined)


class Highway(nn.Module):
    """gate * relu(W x + b) + (1 - gate) * x (Srivastava et al. 2015)."""

    parameter_roles: ClassVar[dict[str, Role]] = {"both.weight": Role("matrix", parts=2)}

    def __init__(self, width: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        new, gate = self.both(x).chunk(2, dim=-1)
        gate = torch.sigmoid(gate + OPEN)
        return gate * F.relu(new) + (1 - gate) * x
