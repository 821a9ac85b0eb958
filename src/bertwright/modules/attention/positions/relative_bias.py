"""Relative position biases: a number for each head and distance that is added to the scores."""

import math
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.modules.attention.positions.distances import RelativeDistances
from bertwright.modules.attention.positions.position_encoding import (
    HeadShape,
    PositionEncoding,
    PositionsConfig,
    RelativePositions,
    ScoreTerm,
)
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.embedding_lookup import embedding_lookup
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.modules.token_tensors import TokenInfo


class AlibiConfig(PositionsConfig):
    """A symmetric linear penalty on the distance, with a slope per head (Press et al. 2022)."""

    kind: Literal["alibi"] = "alibi"
    is_relative: ClassVar[bool] = True

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return AlibiBias(head_shape.num_heads)


class RelativeBiasConfig(PositionsConfig):
    """A learned bias for each head and bucket of distances, shared by all blocks (T5).

    Half of the buckets hold one distance each; the others hold ever longer ranges, up to
    ``longest``. The two directions have separate buckets unless ``one_sided`` (Raffel et al. 2020).
    If ``gated``, each query scales its bias by two gates (Chi et al. 2021).
    """

    kind: Literal["bucketed"] = "bucketed"
    is_relative: ClassVar[bool] = True
    buckets: int = Field(default=32, ge=4, le=65_536)
    longest: int = Field(default=128, ge=2, le=1 << 20)
    one_sided: bool = False
    gated: bool = False

    @model_validator(mode="after")
    def _check_max_distance(self) -> Self:
        exact = (self.buckets if self.one_sided else self.buckets // 2) // 2
        if self.longest <= exact:
            raise ValueError(
                f"longest is {self.longest}, but {exact} buckets hold one distance each: set it "
                f"to more"
            )
        return self

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return RelativeBias(self, head_shape)

    def build_score_term(self, head_shape: HeadShape) -> ScoreTerm | None:
        return GatedRelativeBias(head_shape) if self.gated else None

    def flops(self, width: int, length: int) -> float:
        return 4 * width if self.gated else 0.0


class AlibiBias(PositionEncoding):
    """ALiBi with slopes 2^(-8/H), 2^(-16/H), and so on."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def relative_positions(
        self, query_info: TokenInfo, key_info: TokenInfo, dropout_rng: DropoutRng | None = None
    ) -> RelativePositions:
        distances = RelativeDistances.between(query_info, key_info)
        head = torch.arange(1, self.num_heads + 1, device=distances.values.device)
        slopes = torch.pow(2.0, -8.0 * head / self.num_heads)
        distance = distances.values.abs()
        return RelativePositions(distances, bias=distances.to_bias(-slopes[:, None] * distance))


class RelativeBias(PositionEncoding):
    """A learned table of biases by bucket and head."""

    def __init__(self, config: RelativeBiasConfig, head_shape: HeadShape) -> None:
        super().__init__()
        self.config, self.width = config, head_shape.width
        self.table = nn.Parameter(torch.empty(config.buckets, head_shape.num_heads))

    @property
    def parameter_roles(self) -> dict[str, ParameterRole]:
        """Return the role of the table."""
        return {"table": ParameterRole("table", fan_in=self.width)}

    def relative_positions(
        self, query_info: TokenInfo, key_info: TokenInfo, dropout_rng: DropoutRng | None = None
    ) -> RelativePositions:
        distances = RelativeDistances.between(query_info, key_info)
        config = self.config
        bucket = relative_position_bucket(
            distances.values, config.buckets, config.longest, config.one_sided
        )
        bias = distances.to_bias(embedding_lookup(self.table, bucket).T)
        return RelativePositions(distances, bias=bias)


def relative_position_bucket(
    distance: Tensor, num_buckets: int, max_distance: int, one_sided: bool
) -> Tensor:
    """Return the bucket of every distance from a query back to a key, numbered as in T5."""
    first = torch.zeros_like(distance)
    magnitude = distance.clamp(min=0)
    if not one_sided:
        num_buckets //= 2
        first = torch.where(distance < 0, num_buckets, 0)
        magnitude = distance.abs()
    num_exact = num_buckets // 2
    log_fraction = torch.log(magnitude.clamp(min=1).float() / num_exact) / math.log(
        max_distance / num_exact
    )
    large = (num_exact + (log_fraction * (num_buckets - num_exact)).long()).clamp(
        max=num_buckets - 1
    )
    return first + torch.where(magnitude < num_exact, magnitude, large)


class GatedRelativeBias(ScoreTerm):
    """A gated bias d (1 + u + (1 - u) w r), whose gates u and r are sigmoids of the query."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"gain": ParameterRole("gate")}

    def __init__(self, head_shape: HeadShape) -> None:
        super().__init__(head_shape)
        self.update = nn.Linear(head_shape.head_width, 1, bias=False)
        self.reset = nn.Linear(head_shape.head_width, 1, bias=False)
        self.gain = nn.Parameter(torch.ones(head_shape.num_heads))

    def forward(
        self, query: Tensor, key: Tensor, positions: RelativePositions, qkv_projection: nn.Module
    ) -> Tensor:
        assert positions.bias is not None
        update, reset = torch.sigmoid(self.update(query)), torch.sigmoid(self.reset(query))
        gain = self.gain.view(-1, 1, 1).to(query.dtype)
        return positions.bias * (1 + update + (1 - update) * gain * reset)
