"""Sliding windows with a size and dilation for each encoder block."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.core.config import Settings
from bertwright.modules.attention.mask.visibility import Visibility, WindowVisibility
from bertwright.modules.token_tensors import TokenInfo

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig

PositiveInts = tuple[Annotated[int, Field(ge=1, le=1 << 20)], ...]


class DilatedWindowVisibility(Visibility):
    """A sliding window for every encoder block, dilated in some heads.

    In block n a token attends to ``sizes[n]`` tokens on each side. The first ``dilated_heads``
    heads (all if None) attend to the same number of tokens, but only to every ``dilations[n]``-th
    one; 1 is no dilation. The last element of each list also applies to all further blocks (Beltagy
    et al. 2020, sections 3.1 and 4.1).
    """

    kind: Literal["windows"] = "windows"
    sizes: PositiveInts = Field(min_length=1)
    dilations: PositiveInts = Field(default=(1,), min_length=1)
    dilated_heads: int | None = Field(default=None, ge=1, le=4_096)

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        distance = (query.index - key.index).abs()
        allowed = (distance <= self._reach) & (distance % self.stride == 0)
        if self.dilated_heads is None:
            return allowed
        return allowed | self._undilated_window.visible(query, key)

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        allowed = self._undilated_window.may_attend(query, key)
        allowed = allowed if self.dilated_heads is not None else allowed & False
        # A token only attends to tokens with the same index modulo the stride.
        for remainder in range(self.stride):
            (first, last), (low, high) = (
                _index_range(t.index, self.stride, remainder) for t in (query, key)
            )
            allowed = allowed | ((low <= last + self._reach) & (high >= first - self._reach))
        return allowed

    @property
    def stride(self) -> int:
        return self.dilations[0]

    def at_block(self, index: int) -> Visibility:
        size, dilation = (_value_at(v, index) for v in (self.sizes, self.dilations))
        return _block_visibility(size, dilation, self.dilated_heads)

    def with_blocks(self, blocks: Sequence[int]) -> Visibility:
        values = {
            name: tuple(_value_at(getattr(self, name), block) for block in blocks)
            for name in ("sizes", "dilations")
        }
        return self.model_copy(update=values)

    def at_head(self, index: int) -> Visibility:
        dilated = self.dilated_heads is None or index < self.dilated_heads
        return _block_visibility(self.sizes[0], self.stride if dilated else 1)

    @property
    def _reach(self) -> int:
        return self.sizes[0] * self.stride

    @property
    def _undilated_window(self) -> WindowVisibility:
        return WindowVisibility(size=self.sizes[0])


def _value_at(values: PositiveInts, block: int) -> int:
    """Return the value of a block; the last one also applies to all further blocks."""
    return values[min(block, len(values) - 1)]


def _block_visibility(size: int, dilation: int, dilated_heads: int | None = None) -> Visibility:
    """Return the rule for one block in a canonical form."""
    if dilation == 1:
        return WindowVisibility(size=size)
    return DilatedWindowVisibility(
        sizes=(size,), dilations=(dilation,), dilated_heads=dilated_heads
    )


def _index_range(index: Tensor, stride: int, remainder: int) -> tuple[Tensor, Tensor]:
    """Return the first and last index in each group (..., t) with this remainder modulo ``stride``.

    The range is empty if a group has no such index.
    """
    matches = index % stride == remainder
    first = torch.where(matches, index, _OUT_OF_RANGE).amin(-1)
    return first, torch.where(matches, index, -_OUT_OF_RANGE).amax(-1)


_OUT_OF_RANGE = 1 << 40


class SlidingWindowConfig(Settings):
    """A sliding window in all blocks except every ``every``-th, counted from the first.

    It spans ``window`` tokens on each side (Warner et al. 2024). ``base`` is the base of the rotary
    angles in these blocks; None for the encoder's.
    """

    every: int = Field(default=3, ge=2, le=1_024)
    window: int = Field(default=64, ge=1, le=1 << 20)
    base: float | None = None

    def applies_to(self, block: int) -> bool:
        """Return whether a block has a sliding window."""
        return block % self.every != 0

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        if self.base is not None and not encoder.positions.is_rotary:
            yield "sliding_window.base needs rotary positions: leave it out"


def visibility_at_block(
    block: int, visibility: Visibility, sliding_window: SlidingWindowConfig | None
) -> Visibility:
    """Return the attention rule of one block."""
    block_visibility = visibility.at_block(block)
    if sliding_window is None or not sliding_window.applies_to(block):
        return block_visibility
    return block_visibility & WindowVisibility(size=sliding_window.window)
