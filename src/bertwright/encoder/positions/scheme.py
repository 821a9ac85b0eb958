"""The axis of positions, and what a scheme may give: a vector to add, once or before every block, a
rotation of queries and keys, a relation between them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.positions.distances import Distances
from bertwright.encoder.stream import Coordinates

Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class HeadShape:
    """Of the attention that a scheme serves: its heads, the width of one, and that of the model."""

    heads: int
    head_width: int
    width: int

    @property
    def inner(self) -> int:
        """The width of all heads together."""
        return self.heads * self.head_width


@dataclass(frozen=True, eq=False)
class Relation:
    """What is known of how far keys stand from queries, for one pass.

    ``bias`` (B or 1, H, Lq, Lk) is added to the scores; ``vectors`` (N, D) belong to the distances
    from the largest down; ``stand_ins`` is the part of a term that all blocks have in common;
    ``same_segment`` (B, Lq, Lk) says whether a query and a key belong to one text of a pair.
    """

    distances: Distances
    bias: Tensor | None = None
    vectors: Tensor | None = None
    stand_ins: nn.Module | None = None
    same_segment: Tensor | None = None


class Positions(Choice):
    """The axis."""

    by_distance: ClassVar[bool] = False
    """Whether attention is told how far keys stand from queries."""

    added: ClassVar[bool] = False
    """Whether it is a vector that is added to the pieces."""

    @property
    def tells_segments(self) -> bool:
        """Whether attention is told which texts of a pair a query and a key belong to."""
        return False

    def build(self, width: int, shape: HeadShape) -> "PositionScheme":
        """The module that carries this scheme; ``width`` is that of the sum of the embeddings."""
        raise TypeError(f"{type(self).__name__} is an axis, not a scheme of positions")

    def term(self, shape: HeadShape) -> "Term | None":
        """What every attention has of its own, if it has anything."""
        return None

    def operations(self, width: int, length: int) -> float:
        """Floating-point operations that a term takes per token; what is done once for all rows of
        a batch is not counted."""
        return 0.0


class PositionScheme(nn.Module):
    """What a scheme may give: a vector to add, a rotation of queries and keys, or nothing."""

    longest: int | None = None

    def added(self, coordinates: Coordinates) -> Tensor | None:
        """Vectors (L or B x L, D) to add to the embeddings."""
        return None

    def before(self, block: int, coordinates: Coordinates) -> Tensor | None:
        """Vectors (L or B x L, D) to add to the states before a block."""
        return None

    def rotation(self, coordinates: Coordinates) -> Rotation | None:
        """Cosines and sines, each (1 or B, 1, L, d), in float32."""
        return None

    def relation(self, queries: Coordinates, keys: Coordinates) -> Relation | None:
        """What attention is told of distances; queries are the last of the keys' places."""
        return None


class Term(nn.Module):
    """What an attention adds to its scores, by its queries, its keys and the distances."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape

    @property
    def scale(self) -> float:
        """What products of queries and keys are multiplied with."""
        return self.shape.head_width**-0.5

    def forward(self, query: Tensor, key: Tensor, relation: Relation, fused: nn.Module) -> Tensor:
        """query (B, H, Lq, d) and key (B, H, Lk, d) to (B, H, Lq, Lk); ``fused`` projects a vector
        to a query, a key and a value."""
        raise TypeError(f"{type(self).__name__} is no term by itself")


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate queries or keys x (B, H, L, d) by a rotation (1 or B, 1, L, d)."""
    cosine, sine = rotation
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    first, second = wide.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (wide * cosine + turned * sine).to(x.dtype)
