"""Relative positions as vectors that every attention multiplies with its queries and keys."""

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
    sinusoid_angles,
)
from bertwright.modules.dropout_rng import DropoutRng, weight_dropout
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.norms import LayerNorm
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.modules.token_tensors import TokenInfo

POSITION_STREAM = 69
"""Dropout stream of the sinusoids."""


class TransformerXLPositionsConfig(PositionsConfig):
    """Relative sinusoids, with learned query biases u and v (Dai et al. 2019, section 3.3).

    The biases are shared by all blocks unless ``untied``. Distances are clipped at ``longest``.
    ``segments`` adds a score that depends on the query and on whether the key is in the same
    segment (Yang et al. 2019, section 2.5). ``dropout`` is the dropout rate of the sinusoids.
    """

    kind: Literal["transformer-xl"] = "transformer-xl"
    is_relative: ClassVar[bool] = True
    needs_even_width: ClassVar[bool] = True
    untied: bool = False
    longest: int | None = Field(default=None, ge=1, le=1 << 20)
    base: float = Field(default=10000.0, gt=1)
    segments: bool = False
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @property
    def has_dropout(self) -> bool:
        return self.dropout > 0.0

    @property
    def distinguishes_segments(self) -> bool:
        return self.segments

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return TransformerXLPositions(self, head_shape)

    def flops(self, width: int, length: int) -> float:
        return 2 * width + 2 * width * (2 * length - 1) + (4 * width if self.segments else 0)

    def build_score_term(self, head_shape: HeadShape) -> ScoreTerm | None:
        return TransformerXLScores(head_shape, self.untied, self.segments)


class DisentangledPositionsConfig(PositionsConfig):
    """Disentangled attention with log buckets (He et al. 2021; buckets of Samuel et al. 2023).

    Each bucket of distances has a learned vector, which is projected by the matrices of the tokens
    and multiplied with queries and with keys. There are ``buckets`` buckets on each side: half of
    them hold one distance each, the others ever longer ranges, up to ``longest``. The vectors are
    normalised by a norm with ``epsilon``.
    """

    kind: Literal["log-buckets"] = "log-buckets"
    is_relative: ClassVar[bool] = True
    projects_distances: ClassVar[bool] = True
    buckets: int = Field(default=32, ge=2, le=65_536)
    longest: int = Field(default=512, ge=4, le=1 << 20)
    epsilon: float = Field(default=1e-7, gt=0)

    @model_validator(mode="after")
    def _check_max_distance(self) -> Self:
        if self.longest - 1 <= self.buckets // 2:
            raise ValueError(
                f"longest is {self.longest}, but {self.buckets // 2} buckets hold one distance "
                f"each: set it to {self.buckets // 2 + 2} or more"
            )
        return self

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return DisentangledPositions(self, head_shape.width)

    def flops(self, width: int, length: int) -> float:
        return 4 * width * (2 * length - 1)

    def build_score_term(self, head_shape: HeadShape) -> ScoreTerm | None:
        return DisentangledScores(head_shape)


class TransformerXLPositions(PositionEncoding):
    """Sines, then cosines, of every distance, and the query biases if all blocks share them."""

    def __init__(self, config: TransformerXLPositionsConfig, head_shape: HeadShape) -> None:
        super().__init__()
        self.config, self.width = config, head_shape.width
        self.query_biases = None if config.untied else QueryBiases(head_shape)

    def relative_positions(
        self, query_info: TokenInfo, key_info: TokenInfo, dropout_rng: DropoutRng | None = None
    ) -> RelativePositions:
        distances = RelativeDistances.between(query_info, key_info)
        distance = distances.values
        if self.config.longest is not None:
            distance = distance.clamp(-self.config.longest, self.config.longest)
        angle = sinusoid_angles(distance, self.width, self.config.base, torch.float64)
        vectors = torch.cat((angle.sin(), angle.cos()), dim=-1)
        # All sequences of a step share the sinusoids, and so their dropout.
        vectors = weight_dropout(vectors, self.config.dropout, dropout_rng, POSITION_STREAM)
        is_same = _same_segment(query_info, key_info) if self.config.segments else None
        return RelativePositions(distances, None, vectors, self.query_biases, is_same)


class QueryBiases(nn.Module):
    """The query biases: u for content scores, v for position scores."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "content_bias": ParameterRole("vector"),
        "position_bias": ParameterRole("vector"),
    }

    def __init__(self, head_shape: HeadShape) -> None:
        super().__init__()
        self.content_bias = nn.Parameter(torch.empty(head_shape.inner_width))
        self.position_bias = nn.Parameter(torch.empty(head_shape.inner_width))


class TransformerXLScores(ScoreTerm):
    """The score term u . k + (q + v) . W r, divided by the square root of the head width."""

    def __init__(self, head_shape: HeadShape, untied: bool, segments: bool) -> None:
        super().__init__(head_shape)
        self.projection = nn.Linear(head_shape.width, head_shape.inner_width, bias=False)
        self.query_biases = QueryBiases(head_shape) if untied else None
        self.segment_scores = SegmentScores(head_shape) if segments else None

    def forward(
        self, query: Tensor, key: Tensor, positions: RelativePositions, qkv_projection: nn.Module
    ) -> Tensor:
        biases = self.query_biases or positions.query_biases
        assert positions.vectors is not None
        assert isinstance(biases, QueryBiases)
        heads, width = self.head_shape.num_heads, self.head_shape.head_width
        vectors = self.projection(positions.vectors.to(query.dtype)).view(-1, heads, width)
        content_bias = biases.content_bias.view(heads, 1, width).to(query.dtype)
        position_bias = biases.position_bias.view(heads, 1, width).to(query.dtype)
        content_scores = torch.matmul(content_bias, key.transpose(-1, -2))
        position_scores = torch.matmul(query + position_bias, vectors.permute(1, 2, 0))
        term = content_scores + positions.distances.to_query_key(position_scores)
        if self.segment_scores is not None and positions.is_same_segment is not None:
            term = term + self.segment_scores(query, positions.is_same_segment)
        return term * self.scale


class SegmentScores(nn.Module):
    """The score (q + w) . s, with one vector s for the same segment and one for the other."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"segment_bias": ParameterRole("vector")}

    def __init__(self, head_shape: HeadShape) -> None:
        super().__init__()
        self.head_shape = head_shape
        self.table = empty_embedding(2, head_shape.inner_width)
        self.segment_bias = nn.Parameter(torch.empty(head_shape.inner_width))

    def forward(self, query: Tensor, is_same_segment: Tensor) -> Tensor:
        """Return scores (B, H, Lq, Lk) of ``query`` (B, H, Lq, d), given (B or 1, Lq, Lk)."""
        heads, width = self.head_shape.num_heads, self.head_shape.head_width
        vectors = self.table.weight.view(2, heads, width).permute(1, 2, 0).to(query.dtype)
        bias = self.segment_bias.view(heads, 1, width).to(query.dtype)
        same, other = torch.matmul(query + bias, vectors).split(1, dim=-1)
        return torch.where(is_same_segment[:, None], same, other)


def _same_segment(query_info: TokenInfo, key_info: TokenInfo) -> Tensor:
    """Return whether queries and keys have the same segment, (B or 1, Lq, Lk)."""
    if query_info.segment_ids is None or key_info.segment_ids is None:
        return torch.ones_like(query_info.index[:, :, None] >= key_info.index[:, None, :])
    return query_info.segment_ids[:, :, None] == key_info.segment_ids[:, None, :]


class DisentangledPositions(PositionEncoding):
    """A normalised table of bucket vectors that all blocks share."""

    def __init__(self, config: DisentangledPositionsConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.table = empty_embedding(2 * config.buckets - 1, width)
        self.norm = LayerNorm(width, config.epsilon)

    def relative_positions(
        self, query_info: TokenInfo, key_info: TokenInfo, dropout_rng: DropoutRng | None = None
    ) -> RelativePositions:
        distances = RelativeDistances.between(query_info, key_info)
        index = log_bucket_position(distances.values, self.config.buckets, self.config.longest)
        vectors = embedding_lookup(self.table.weight, index + self.config.buckets - 1)
        return RelativePositions(distances, vectors=self.norm(vectors))


def log_bucket_position(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of every distance, from -(num_buckets - 1) to num_buckets - 1."""
    middle = num_buckets // 2
    magnitude = distance.abs()
    is_exact = magnitude < middle
    magnitude = torch.where(is_exact, middle, magnitude.clamp(max=max_distance - 1)).float()
    log_bucket = (
        torch.log(magnitude / middle) / math.log((max_distance - 1) / middle) * (middle - 1)
    )
    large = (torch.ceil(log_bucket) + middle).long().clamp(max=num_buckets - 1)
    return torch.where(is_exact, distance, large * distance.sign())


class DisentangledScores(ScoreTerm):
    """Query-to-distance and distance-to-key scores, both with the attention's fused projection."""

    @property
    def scale(self) -> float:
        return (3 * self.head_shape.head_width) ** -0.5

    def forward(
        self, query: Tensor, key: Tensor, positions: RelativePositions, qkv_projection: nn.Module
    ) -> Tensor:
        assert positions.vectors is not None
        heads, width = self.head_shape.num_heads, self.head_shape.head_width
        projected = qkv_projection(positions.vectors.to(query.dtype)).unflatten(
            -1, (-1, heads, width)
        )
        as_query, as_key = projected.permute(1, 2, 3, 0)[:2].unbind(0)
        to_distance = positions.distances.to_query_key(torch.matmul(query, as_key))
        from_distance = positions.distances.to_query_key_from_keys(torch.matmul(key, as_query))
        return (to_distance + from_distance) * self.scale
