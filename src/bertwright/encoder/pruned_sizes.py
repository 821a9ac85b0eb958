"""The sizes of the blocks after structured pruning."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, field_validator

from bertwright.core.config import Settings
from bertwright.core.messages import count_noun
from bertwright.encoder.block import SUBLAYER_NAMES
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.mask import visibility_by_head

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig

BlockSizes = tuple[Annotated[int, Field(ge=0, le=1 << 20)], ...]


class PrunedSizes(Settings):
    """The remaining ``heads`` and feed-forward ``units`` of every block; None if not pruned."""

    heads: BlockSizes | None = Field(default=None, min_length=1)
    units: BlockSizes | None = Field(default=None, min_length=1)

    @field_validator("heads", "units")
    @classmethod
    def _check_at_least_one(cls, sizes: BlockSizes | None) -> BlockSizes | None:
        if sizes is not None and min(sizes) < 1:
            raise ValueError(f"nothing is left of block {sizes.index(min(sizes))}: keep 1 or more")
        return sizes

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        yield from self._size_conflicts(encoder, "heads", self.heads, "s")
        yield from self._size_conflicts(encoder, "units", self.units, "f")
        if encoder.norm.placement == "sub":
            yield "pruned_sizes does not support inner norms: set norm.placement to pre or post"
        mixer = encoder.mixer
        is_plain = isinstance(mixer, AttentionConfig) and not mixer.global_projections
        num_heads = mixer.head_shape(encoder.last_block_width).num_heads
        num_rules = len(visibility_by_head(encoder.visibility, num_heads))
        heads_differ = encoder.positions.is_relative or encoder.bottleneck or num_rules > 1
        if self.heads is not None and (not is_plain or heads_differ):
            yield (
                "pruned_sizes.heads needs plain attention with interchangeable heads: set "
                "mixer.kind to attention without global_projections, positions to none, learned, "
                "sinusoidal or rotary, visibility to one rule for all, and bottleneck to null"
            )

    def _size_conflicts(
        self, encoder: "EncoderConfig", name: str, sizes: BlockSizes | None, letter: str
    ) -> Iterator[str]:
        if sizes is None:
            return
        depth, orders = encoder.depth, encoder.depth.sublayer_orders()
        if len(sizes) != len(orders):
            blocks = count_noun(len(sizes), "block")
            yield f"pruned_sizes.{name} has {blocks}, but depth has {len(orders)}"
        if (most := max(order.count(letter) for order in orders)) != 1:
            yield (
                f"pruned_sizes.{name} needs one {SUBLAYER_NAMES[letter]} per block, but there "
                f"are {most} in one: leave it out"
            )
        for block, order in enumerate(orders):
            owner = depth.owner_block(block, letter) if letter in order else block
            if sizes[owner] != sizes[block]:
                yield (
                    f"pruned_sizes.{name}: blocks {owner} and {block} share parameters: set "
                    f"both to the same size"
                )
