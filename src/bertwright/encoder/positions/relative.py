"""A vector for each distance, which queries and keys answer in every attention."""

import math
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.encoder.kernels.lookup import lookup, table
from bertwright.encoder.norms import LayerNorm
from bertwright.encoder.positions.distances import Distances
from bertwright.encoder.positions.scheme import (
    HeadShape,
    Positions,
    PositionScheme,
    Relation,
    Term,
)
from bertwright.encoder.roles import Role
from bertwright.encoder.stream import Coordinates


class TransformerXl(Positions):
    """Sines and cosines of the distance, answered by the query; two learned vectors stand for the
    query where only the key, or only the distance, matters (Dai et al. 2019, section 3.3).

    They are the same in all blocks unless ``untied``. ``longest`` is where distances stop growing.
    ``segments`` adds whether query and key belong to the same text of a pair (Yang et al. 2019,
    section 2.5), which the query answers, too.
    """

    kind: Literal["transformer-xl"] = "transformer-xl"
    by_distance: ClassVar[bool] = True
    untied: bool = False
    longest: int | None = Field(default=None, ge=1, le=1 << 20)
    base: float = Field(default=10000.0, gt=1)
    segments: bool = False

    @property
    def tells_segments(self) -> bool:
        return self.segments

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return XlPositions(self, shape)

    def operations(self, width: int, length: int) -> float:
        return 2 * width + 2 * width * (2 * length - 1) + (4 * width if self.segments else 0)

    def term(self, shape: HeadShape) -> Term | None:
        return XlTerm(shape, self.untied, self.segments)


class LogBuckets(Positions):
    """A learned vector for each bucket of distances, met by queries and by keys through the
    projection of the pieces themselves (He et al. 2021; buckets of Samuel et al. 2023).

    ``buckets`` on each side, of one distance each up to the half of them, then growing up to
    ``longest``. The vectors are normalised; ``epsilon`` is that of their norm.
    """

    kind: Literal["log-buckets"] = "log-buckets"
    by_distance: ClassVar[bool] = True
    buckets: int = Field(default=32, ge=2, le=65_536)
    longest: int = Field(default=512, ge=4, le=1 << 20)
    epsilon: float = Field(default=1e-7, gt=0)

    @model_validator(mode="after")
    def _grow(self) -> Self:
        if self.longest - 1 <= self.buckets // 2:
            raise ValueError(
                f"longest is {self.longest}, and {self.buckets // 2} buckets hold one distance "
                f"each: set it to {self.buckets // 2 + 2} or more"
            )
        return self

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return LogBucketPositions(self, shape.width)

    def operations(self, width: int, length: int) -> float:
        return 4 * width * (2 * length - 1)

    def term(self, shape: HeadShape) -> Term | None:
        return DisentangledTerm(shape)


class XlPositions(PositionScheme):
    """Sines, then cosines, of every distance; the two vectors where all blocks have the same."""

    def __init__(self, choice: TransformerXl, shape: HeadShape) -> None:
        super().__init__()
        self.choice, self.width = choice, shape.width
        self.stand_ins = None if choice.untied else StandIns(shape)

    def relation(self, queries: Coordinates, keys: Coordinates) -> Relation:
        distances = Distances.between(queries, keys)
        distance = distances.values
        if self.choice.longest is not None:
            distance = distance.clamp(-self.choice.longest, self.choice.longest)
        steps = torch.arange(0, self.width, 2, dtype=torch.float64, device=distance.device)
        angle = distance[:, None] * (1.0 / self.choice.base ** (steps / self.width))
        vectors = torch.cat((angle.sin(), angle.cos()), dim=-1)
        same = None
        if self.choice.segments:
            same = _same_segment(queries, keys)
        return Relation(distances, None, vectors, self.stand_ins, same)


class StandIns(nn.Module):
    """What stands for the query: u where only the key matters, v where only the distance does."""

    parameter_roles: ClassVar[dict[str, Role]] = {"key": Role("vector"), "distance": Role("vector")}

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.empty(shape.inner))
        self.distance = nn.Parameter(torch.empty(shape.inner))


class XlTerm(Term):
    """u . k + (q + v) . W r, over the root of the width of a head."""

    def __init__(self, shape: HeadShape, untied: bool, segments: bool) -> None:
        super().__init__(shape)
        self.projection = nn.Linear(shape.width, shape.inner, bias=False)
        self.stand_ins = StandIns(shape) if untied else None
        self.segments = Segments(shape) if segments else None

    def forward(self, query: Tensor, key: Tensor, relation: Relation, fused: nn.Module) -> Tensor:
        own = self.stand_ins or relation.stand_ins
        assert relation.vectors is not None
        assert isinstance(own, StandIns)
        heads, width = self.shape.heads, self.shape.head_width
        vectors = self.projection(relation.vectors.to(query.dtype)).view(-1, heads, width)
        for_key = own.key.view(heads, 1, width).to(query.dtype)
        for_distance = own.distance.view(heads, 1, width).to(query.dtype)
        by_key = torch.matmul(for_key, key.transpose(-1, -2))
        by_distance = torch.matmul(query + for_distance, vectors.permute(1, 2, 0))
        term = by_key + relation.distances.placed(by_distance)
        if self.segments is not None and relation.same_segment is not None:
            term = term + self.segments(query, relation.same_segment)
        return term * self.scale


class Segments(nn.Module):
    """(q + w) . s, where s is one vector for the same text and another for the other."""

    parameter_roles: ClassVar[dict[str, Role]] = {"segment": Role("vector")}

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        self.table = table(2, shape.inner)
        self.segment = nn.Parameter(torch.empty(shape.inner))

    def forward(self, query: Tensor, same: Tensor) -> Tensor:
        """query (B, H, Lq, d) and same (B or 1, Lq, Lk) to (B, H, Lq, Lk)."""
        heads, width = self.shape.heads, self.shape.head_width
        vectors = self.table.weight.view(2, heads, width).permute(1, 2, 0).to(query.dtype)
        stand_in = self.segment.view(heads, 1, width).to(query.dtype)
        own, other = torch.matmul(query + stand_in, vectors).split(1, dim=-1)
        return torch.where(same[:, None], own, other)


def _same_segment(queries: Coordinates, keys: Coordinates) -> Tensor:
    """(B or 1, Lq, Lk): whether a query and a key belong to one segment; without any, all do."""
    if queries.segment is None or keys.segment is None:
        return torch.ones_like(queries.place[:, :, None] >= keys.place[:, None, :])
    return queries.segment[:, :, None] == keys.segment[:, None, :]


class LogBucketPositions(PositionScheme):
    """A table of buckets, normalised: the same for all blocks."""

    def __init__(self, choice: LogBuckets, width: int) -> None:
        super().__init__()
        self.choice = choice
        self.table = table(2 * choice.buckets - 1, width)
        self.norm = LayerNorm(width, choice.epsilon)

    def relation(self, queries: Coordinates, keys: Coordinates) -> Relation:
        distances = Distances.between(queries, keys)
        index = log_buckets(distances.values, self.choice.buckets, self.choice.longest)
        vectors = lookup(self.table.weight, index + self.choice.buckets - 1)
        return Relation(distances, vectors=self.norm(vectors))


def log_buckets(distance: Tensor, number: int, longest: int) -> Tensor:
    """The bucket of every distance, from -(number - 1) to number - 1."""
    middle = number // 2
    far = distance.abs()
    near = far < middle
    far = torch.where(near, middle, far.clamp(max=longest - 1)).float()
    grown = torch.log(far / middle) / math.log((longest - 1) / middle) * (middle - 1)
    large = (torch.ceil(grown) + middle).long().clamp(max=number - 1)
    return torch.where(near, distance, large * distance.sign())


class DisentangledTerm(Term):
    """Query against distance and distance against key, both through the fused projection."""

    @property
    def scale(self) -> float:
        return (3 * self.shape.head_width) ** -0.5

    def forward(self, query: Tensor, key: Tensor, relation: Relation, fused: nn.Module) -> Tensor:
        assert relation.vectors is not None
        heads, width = self.shape.heads, self.shape.head_width
        projected = fused(relation.vectors.to(query.dtype)).unflatten(-1, (-1, heads, width))
        as_query, as_key = projected.permute(1, 2, 3, 0)[:2].unbind(0)
        to_distance = relation.distances.placed(torch.matmul(query, as_key))
        from_distance = relation.distances.placed_from_keys(torch.matmul(key, as_query))
        return (to_distance + from_distance) * self.scale
