"""A number for each head and distance, added to the scores."""

import math
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.encoder.kernels.lookup import lookup
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


class Alibi(Positions):
    """A penalty that grows with the distance, steeper from head to head (Press et al. 2022).

    On both sides alike, where both are seen.
    """

    kind: Literal["alibi"] = "alibi"
    by_distance: ClassVar[bool] = True

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return AlibiPositions(shape.heads)


class Bucketed(Positions):
    """A learned number for each head and bucket of distances, the same in all blocks (Raffel et al.
    2020).

    Half of the buckets hold one distance each, the others grow up to ``longest``; the two
    directions have buckets of their own unless ``one_sided``. ``gated``: each query scales what it
    is given by two gates of its own (Chi et al. 2021).
    """

    kind: Literal["bucketed"] = "bucketed"
    by_distance: ClassVar[bool] = True
    buckets: int = Field(default=32, ge=4, le=65_536)
    longest: int = Field(default=128, ge=2, le=1 << 20)
    one_sided: bool = False
    gated: bool = False

    @model_validator(mode="after")
    def _grow(self) -> Self:
        exact = (self.buckets if self.one_sided else self.buckets // 2) // 2
        if self.longest <= exact:
            raise ValueError(
                f"longest is {self.longest}, and {exact} buckets hold one distance each: set it "
                f"to more"
            )
        return self

    def build(self, width: int, shape: HeadShape) -> PositionScheme:
        return BucketedPositions(self, shape)

    def term(self, shape: HeadShape) -> Term | None:
        return GatedTerm(shape) if self.gated else None

    def operations(self, width: int, length: int) -> float:
        return 4 * width if self.gated else 0.0


class AlibiPositions(PositionScheme):
    """Slopes 2^(-8/H), 2^(-16/H), and so on."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def relation(self, queries: Coordinates, keys: Coordinates) -> Relation:
        distances = Distances.between(queries, keys)
        head = torch.arange(1, self.heads + 1, device=distances.values.device)
        slopes = torch.pow(2.0, -8.0 * head / self.heads)
        far = distances.values.abs()
        return Relation(distances, bias=distances.spread(-slopes[:, None] * far))


class BucketedPositions(PositionScheme):
    """A table of buckets and heads."""

    def __init__(self, choice: Bucketed, shape: HeadShape) -> None:
        super().__init__()
        self.choice, self.width = choice, shape.width
        self.table = nn.Parameter(torch.empty(choice.buckets, shape.heads))

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """What the table is for."""
        return {"table": Role("table", fan_in=self.width)}

    def relation(self, queries: Coordinates, keys: Coordinates) -> Relation:
        distances = Distances.between(queries, keys)
        choice = self.choice
        bucket = buckets(
            distances.values,
            choice.buckets,
            choice.longest,
            choice.one_sided,
        )
        return Relation(distances, bias=distances.spread(lookup(self.table, bucket).T))


def buckets(distance: Tensor, number: int, longest: int, one_sided: bool) -> Tensor:
    """The bucket of every distance (from a query back to a key), as T5 numbers them."""
    first = torch.zeros_like(distance)
    far = distance.clamp(min=0)
    if not one_sided:
        number //= 2
        first = torch.where(distance < 0, number, 0)
        far = distance.abs()
    exact = number // 2
    grown = torch.log(far.clamp(min=1).float() / exact) / math.log(longest / exact)
    large = (exact + (grown * (number - exact)).long()).clamp(max=number - 1)
    return first + torch.where(far < exact, far, large)


class GatedTerm(Term):
    """d (1 + u + (1 - u) w r) of a bias d, the gates u and r sigmoids of the query."""

    parameter_roles: ClassVar[dict[str, Role]] = {"gain": Role("gate")}

    def __init__(self, shape: HeadShape) -> None:
        super().__init__(shape)
        self.update = nn.Linear(shape.head_width, 1, bias=False)
        self.reset = nn.Linear(shape.head_width, 1, bias=False)
        self.gain = nn.Parameter(torch.ones(shape.heads))

    def forward(self, query: Tensor, key: Tensor, relation: Relation, fused: nn.Module) -> Tensor:
        assert relation.bias is not None
        update, reset = torch.sigmoid(self.update(query)), torch.sigmoid(self.reset(query))
        gain = self.gain.view(-1, 1, 1).to(query.dtype)
        return relation.bias * (1 + update + (1 - update) * gain * reset)
