"""The axis of position encodings.

A position encoding may add a vector to the embeddings or before every block, rotate queries and
keys, or add a term to the attention scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.modules.attention.positions.distances import RelativeDistances
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.dtypes import at_least_float32
from bertwright.modules.token_tensors import TokenInfo

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig

RotaryAngles = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class HeadShape:
    """The shape of attention heads: their number, the width of one, and the model's width."""

    num_heads: int
    head_width: int
    width: int

    @property
    def inner_width(self) -> int:
        """Return the width of all heads together."""
        return self.num_heads * self.head_width


@dataclass(frozen=True, eq=False)
class RelativePositions:
    """The relative positions of keys and queries in one pass.

    ``bias`` (B or 1, H, Lq, Lk) is added to the scores. ``vectors`` (N, D) are the embeddings of
    the distances, in descending order. ``query_biases`` are shared by all blocks.
    ``is_same_segment`` (B, Lq, Lk) is True where a query and a key have the same segment.
    """

    distances: RelativeDistances
    bias: Tensor | None = None
    vectors: Tensor | None = None
    query_biases: nn.Module | None = None
    is_same_segment: Tensor | None = None


class PositionsConfig(Config):
    """The position encoding of an encoder."""

    is_relative: ClassVar[bool] = False
    """True if attention depends on the distance between keys and queries."""

    is_additive: ClassVar[bool] = False
    """True if a vector is added to the token embeddings."""

    is_per_block: ClassVar[bool] = False
    """True if a vector is added to the hidden states before every block."""

    is_rotary: ClassVar[bool] = False
    """True if queries and keys are rotated."""

    projects_distances: ClassVar[bool] = False
    """True if embeddings of distances are projected by the query and key matrices of the tokens."""

    needs_even_width: ClassVar[bool] = False
    """True if half of a vector are sines and the other half cosines."""

    supports_recurrence: ClassVar[bool] = False
    """True if a recurrent mixer can use the encoding."""

    @property
    def has_dropout(self) -> bool:
        """Return whether relative positions have dropout in training."""
        return False

    @property
    def distinguishes_segments(self) -> bool:
        """Return whether attention depends on the segments of a query and a key."""
        return False

    def build(self, width: int, head_shape: HeadShape) -> "PositionEncoding":
        """Build the position encoding for embeddings of this width."""
        raise TypeError(f"{type(self).__name__} is an axis, not a position encoding")

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        widths = (encoder.embeddings.sum_width(encoder.embeddings_width), *encoder.hidden_widths)
        if self.needs_even_width and (odd_widths := [width for width in widths if width % 2]):
            yield f"sinusoidal positions need even widths, but {odd_widths[0]} is odd"

    def build_score_term(self, head_shape: HeadShape) -> "ScoreTerm | None":
        """Build the score term of one attention module; None if the encoding has none."""
        return None

    def flops(self, width: int, length: int) -> float:
        """Return the FLOPs per token of the score term, without work that a batch shares."""
        return 0.0


class PositionEncoding(nn.Module):
    """A base class of position encodings that by default does nothing."""

    max_length: int | None = None

    def position_embedding(self, token_info: TokenInfo) -> Tensor | None:
        """Return vectors (L, D) or (B, L, D) to add to the embeddings; None for none."""
        return None

    def block_embedding(self, block: int, token_info: TokenInfo) -> Tensor | None:
        """Return vectors (L, D) or (B, L, D) to add before a block; None for none."""
        return None

    def rotary_angles(self, token_info: TokenInfo) -> RotaryAngles | None:
        """Return cosines and sines, (1 or B, 1, L, d) each, in float32; None for no rotation."""
        return None

    def relative_positions(
        self, query_info: TokenInfo, key_info: TokenInfo, dropout_rng: DropoutRng | None = None
    ) -> RelativePositions | None:
        """Return the relative positions, None for none; queries are the last tokens of the keys."""
        return None


class ScoreTerm(nn.Module):
    """A term of the attention scores, computed from queries, keys and relative positions."""

    def __init__(self, head_shape: HeadShape) -> None:
        super().__init__()
        self.head_shape = head_shape

    @property
    def scale(self) -> float:
        """Return the factor of the query-key products."""
        return self.head_shape.head_width**-0.5

    def forward(
        self, query: Tensor, key: Tensor, positions: RelativePositions, qkv_projection: nn.Module
    ) -> Tensor:
        """Return the term (B, H, Lq, Lk) for ``query`` (B, H, Lq, d) and ``key`` (B, H, Lk, d).

        ``qkv_projection`` is the attention's projection to queries, keys and values.
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
