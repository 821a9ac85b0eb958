"""The axis of position encodings.

They may add a vector to the embeddings or before every block, rotate queries and keys, or add a
term to the attention scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.modules.attention.positions.distances import RelativeDistances
from bertwright.modules.dtypes import at_least_float32
from bertwright.modules.token_tensors import TokenInfo

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig

RotaryAngles = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class HeadShape:
    """The heads of an attention: their number, the width of one, and the model's width."""

    num_heads: int
    head_width: int
    width: int

    @property
    def inner_width(self) -> int:
        """The width of all heads together."""
        return self.num_heads * self.head_width


@dataclass(frozen=True, eq=False)
class RelativePositions:
    """The relative positions of keys and queries in one pass.

    ``bias`` (B or 1, H, Lq, Lk) is added to the scores; ``vectors`` (N, D) belong to the distances
    in descending order; ``query_biases`` are shared by all blocks; ``is_same_segment`` (B, Lq, Lk)
    is True where a query and a key have the same segment.
    """

    distances: RelativeDistances
    bias: Tensor | None = None
    vectors: Tensor | None = None
    query_biases: nn.Module | None = None
    is_same_segment: Tensor | None = None


class PositionsConfig(Config):
    """The position encoding of an encoder."""

    is_relative: ClassVar[bool] = False
    """Whether attention depends on the distance between keys and queries."""

    is_additive: ClassVar[bool] = False
    """Whether a vector is added to the token embeddings."""

    is_per_block: ClassVar[bool] = False
    """Whether a vector is added to the hidden states before every block."""

    is_rotary: ClassVar[bool] = False
    """Whether queries and keys are rotated."""

    projects_distances: ClassVar[bool] = False
    """Whether vectors of distances are projected like the tokens."""

    needs_even_width: ClassVar[bool] = False
    """Whether half of a vector are sines, the other half cosines."""

    supports_recurrence: ClassVar[bool] = False
    """Whether a recurrent mixer can use it."""

    @property
    def distinguishes_segments(self) -> bool:
        """Whether attention depends on the segments of a query and a key."""
        return False

    def build(self, width: int, head_shape: HeadShape) -> "PositionEncoding":
        """Build the position encoding for embeddings of this width."""
        raise TypeError(f"{type(self).__name__} is an axis, not a position encoding")

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield why this choice does not fit the rest of an encoder, one sentence each."""
        widths = (encoder.embeddings.sum_width(encoder.embeddings_width), *encoder.hidden_widths)
        if self.needs_even_width and (odd_widths := [width for width in widths if width % 2]):
            yield f"sinusoidal positions need even widths, but {odd_widths[0]} is odd"

    def build_score_term(self, head_shape: HeadShape) -> "ScoreTerm | None":
        """Build the score term of one attention module, if there is one."""
        return None

    def flops(self, width: int, length: int) -> float:
        """Return the FLOPs per token of a score term, without work shared by a batch."""
        return 0.0


class PositionEncoding(nn.Module):
    """A position encoding; by default it does nothing."""

    max_length: int | None = None

    def position_embedding(self, token_info: TokenInfo) -> Tensor | None:
        """Return vectors (L or B x L, D) to add to the embeddings."""
        return None

    def block_embedding(self, block: int, token_info: TokenInfo) -> Tensor | None:
        """Return vectors (L or B x L, D) to add to the hidden states before a block."""
        return None

    def rotary_angles(self, token_info: TokenInfo) -> RotaryAngles | None:
        """Return cosines and sines, each (1 or B, 1, L, d), in float32."""
        return None

    def relative_positions(
        self, query_info: TokenInfo, key_info: TokenInfo
    ) -> RelativePositions | None:
        """Return the relative positions; queries are the last of the keys' tokens."""
        return None


class ScoreTerm(nn.Module):
    """A term of the attention scores, computed from queries, keys and relative positions."""

    def __init__(self, head_shape: HeadShape) -> None:
        super().__init__()
        self.head_shape = head_shape

    @property
    def scale(self) -> float:
        """The factor of the query-key products."""
        return self.head_shape.head_width**-0.5

    def forward(
        self, query: Tensor, key: Tensor, positions: RelativePositions, qkv_projection: nn.Module
    ) -> Tensor:
        """Return the term (B, H, Lq, Lk) of query (B, H, Lq, d) and key (B, H, Lk, d).

        ``qkv_projection`` projects a vector to a query, a key and a value.
        """
        raise TypeError(f"{type(self).__name__} is abstract")


def sinusoid_angles(position: Tensor, width: int, base: float, dtype: torch.dtype) -> Tensor:
    """Return the angles (..., width / 2) of positions (...), with geometric wavelengths."""
    steps = torch.arange(0, width, 2, dtype=dtype, device=position.device)
    return position[..., None].to(dtype) * (1.0 / base ** (steps / width))


def interleave_sine_cosine(angles: Tensor) -> Tensor:
    """Return sines in the even channels and cosines in the odd ones, (..., width)."""
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def apply_rotary(x: Tensor, rotary: RotaryAngles) -> Tensor:
    """Rotate queries or keys x (B, H, L, d) by rotary angles (1 or B, 1, L, d)."""
    cosine, sine = rotary
    precise = at_least_float32(x)
    first, second = precise.chunk(2, dim=-1)
    rotated = torch.cat((-second, first), dim=-1)
    return (precise * cosine + rotated * sine).to(x.dtype)
