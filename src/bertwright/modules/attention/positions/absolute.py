"""Absolute position encodings: added to the embeddings, or rotary."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.modules.attention.positions.position_encoding import (
    HeadShape,
    PositionEncoding,
    PositionsConfig,
    RotaryAngles,
    interleave_sine_cosine,
    sinusoid_angles,
)
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.token_tensors import TokenInfo

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig


class NoPositionsConfig(PositionsConfig):
    """No position encoding; the model learns about order only through the attention mask."""

    kind: Literal["none"] = "none"
    supports_recurrence: ClassVar[bool] = True

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return PositionEncoding()


class LearnedPositionsConfig(PositionsConfig):
    """A learned vector per position, added to the embeddings (BERT).

    ``offset`` is the table row of position 0 (RoBERTa: 2).
    """

    kind: Literal["learned"] = "learned"
    is_additive: ClassVar[bool] = True
    supports_recurrence: ClassVar[bool] = True
    size: int = Field(default=512, ge=1, le=1 << 20)
    offset: int = Field(default=0, ge=0, le=1 << 20)

    @property
    def num_positions(self) -> int:
        """Return the number of positions."""
        return self.size

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return LearnedPositionEmbedding(width, self.size, self.offset)


AxialSide = Annotated[int, Field(ge=1, le=65_536)]


class AxialPositionsConfig(PositionsConfig):
    """Learned vectors for the row and the column of a position in a grid of ``shape``.

    The row has a quarter of the width, the column the rest (Kitaev et al. 2020, as released).
    """

    kind: Literal["axial"] = "axial"
    is_additive: ClassVar[bool] = True
    shape: tuple[AxialSide, AxialSide] = (64, 64)

    @property
    def num_positions(self) -> int:
        """Return the number of positions."""
        return self.shape[0] * self.shape[1]

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return AxialPositionEmbedding(width, self.shape)


class SinusoidalPositionsConfig(PositionsConfig):
    """Fixed sines and cosines of geometric wavelengths, added to the embeddings (Vaswani 2017)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    is_additive: ClassVar[bool] = True
    needs_even_width: ClassVar[bool] = True
    supports_recurrence: ClassVar[bool] = True
    base: float = Field(default=10000.0, gt=1)

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return SinusoidalPositionEmbedding(width, self.base)


class PerBlockPositionsConfig(PositionsConfig):
    """Sinusoids of the position and of the block number, from 1, added before every block.

    ``learned`` is the number of blocks with a learned vector instead of the block's sinusoids; None
    for no learned vectors (Dehghani et al. 2019, section 2.1; their code has learned ones).
    """

    kind: Literal["every-block"] = "every-block"
    is_per_block: ClassVar[bool] = True
    needs_even_width: ClassVar[bool] = True
    base: float = Field(default=10000.0, gt=1)
    learned: int | None = Field(default=None, ge=1, le=1_024)

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return PerBlockPositionEmbedding(head_shape.width, self)

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        yield from super().conflicts(encoder)
        num_blocks = len(encoder.depth.sublayer_orders())
        if self.learned is not None and self.learned < num_blocks:
            yield (
                f"positions.learned ({self.learned}) is less than the number of blocks "
                f"({num_blocks})"
            )


class RotaryPositionsConfig(PositionsConfig):
    """Queries and keys rotated by angles that grow with the position (Su et al. 2021).

    As in Hugging Face models, channel i of a head is rotated together with channel i + d / 2, where
    d is the width of a head.
    """

    kind: Literal["rotary"] = "rotary"
    is_rotary: ClassVar[bool] = True
    base: float = Field(default=10000.0, gt=1)

    def build(self, width: int, head_shape: HeadShape) -> PositionEncoding:
        return RotaryEmbedding(head_shape.head_width, self.base)

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        for _, width in encoder.block_widths:
            shape = encoder.mixer.head_shape(width)
            if shape.head_width % 2:
                yield (
                    f"rotary positions rotate pairs, but width {width} with {shape.num_heads} "
                    f"heads has head width {shape.head_width}: choose an even one"
                )


class LearnedPositionEmbedding(PositionEncoding):
    """A table of learned position embeddings."""

    def __init__(self, width: int, size: int, offset: int) -> None:
        super().__init__()
        self.table = empty_embedding(size + offset, width)
        self.offset, self.max_length = offset, size

    def position_embedding(self, token_info: TokenInfo) -> Tensor | None:
        if token_info.position_ids is None:
            length = token_info.index.shape[-1]
            return self.table.weight[self.offset : self.offset + length]
        return embedding_lookup(self.table.weight, token_info.position_ids + self.offset)


class AxialPositionEmbedding(PositionEncoding):
    """A table for the rows and a table for the columns of a grid of positions."""

    def __init__(self, width: int, shape: tuple[int, int]) -> None:
        super().__init__()
        self.rows = empty_embedding(shape[0], width // 4)
        self.columns = empty_embedding(shape[1], width - width // 4)
        self.max_length = shape[0] * shape[1]

    def position_embedding(self, token_info: TokenInfo) -> Tensor | None:
        positions = (
            token_info.index[0] if token_info.position_ids is None else token_info.position_ids
        )
        row = positions // len(self.columns.weight)
        column = positions % len(self.columns.weight)
        by_row = embedding_lookup(self.rows.weight, row)
        return torch.cat((by_row, embedding_lookup(self.columns.weight, column)), dim=-1)


class SinusoidalPositionEmbedding(PositionEncoding):
    """Sinusoidal position embeddings: sines in the even channels, cosines in the odd ones."""

    def __init__(self, width: int, base: float) -> None:
        super().__init__()
        self.width, self.base = width, base

    def position_embedding(self, token_info: TokenInfo) -> Tensor | None:
        position = (
            token_info.index[0] if token_info.position_ids is None else token_info.position_ids
        )
        angles = sinusoid_angles(position, self.width, self.base, torch.float32)
        return interleave_sine_cosine(angles)


class PerBlockPositionEmbedding(PositionEncoding):
    """Sinusoids as in ``SinusoidalPositionEmbedding``, with an optional table of blocks."""

    def __init__(self, width: int, config: PerBlockPositionsConfig) -> None:
        super().__init__()
        self.width, self.base = width, config.base
        self.table = None if config.learned is None else empty_embedding(config.learned, width)

    def block_embedding(self, block: int, token_info: TokenInfo) -> Tensor | None:
        signal = self._sinusoids(token_info.resolved_position_ids)
        if self.table is not None:
            return signal + self.table.weight[block]
        return signal + self._sinusoids(torch.tensor([block + 1], device=signal.device))

    def _sinusoids(self, position: Tensor) -> Tensor:
        angles = sinusoid_angles(position, self.width, self.base, torch.float64)
        return interleave_sine_cosine(angles)


class RotaryEmbedding(PositionEncoding):
    """Rotary position embedding."""

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width, self.base = head_width, base

    def rotary_angles(self, token_info: TokenInfo) -> RotaryAngles | None:
        position = token_info.resolved_position_ids
        angle = sinusoid_angles(position, self.head_width, self.base, torch.float32)
        angle = torch.cat((angle, angle), dim=-1)[:, None]
        return angle.cos(), angle.sin()
