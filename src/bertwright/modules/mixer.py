"""The mixer axis: how tokens exchange information (token mixer)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    CausalVisibility,
    Tiling,
    Visibility,
    is_split_by_direction,
)
from bertwright.modules.attention.positions import HeadShape, PositionsConfig
from bertwright.modules.hooks import HookPoint, tap
from bertwright.modules.norms import NormConfig

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig


class MixerConfig(Config):
    """The token mixer of a block."""

    supports_any_visibility: ClassVar[bool] = True
    """True if the mixer supports every attention rule, not only bidirectional and causal."""

    supports_memory: ClassVar[bool] = False
    """True if tokens can attend to a memory of earlier text."""

    is_recurrent: ClassVar[bool] = False
    """True if the mixer reads token by token, so the attention rule must be a reading direction."""

    supports_graph: ClassVar[bool] = True
    """True if a model with this mixer can be exported as a graph."""

    def head_shape(self, width: int) -> HeadShape:
        """Return the heads in a model of this width, for the position encoding."""
        return HeadShape(1, width, width)

    def flops(self, width: int, length: int) -> tuple[float, float]:
        """Return the FLOPs per token: independent of the sequence length, then dependent on it."""
        raise TypeError(f"{type(self).__name__} is an axis, not a mixer")

    def supports_positions(self, positions: PositionsConfig) -> bool:
        """Return whether the scores can include the score term of a position encoding."""
        return not positions.is_relative

    @property
    def supports_cache(self) -> bool:
        """Return whether a sequence can be read in parts: keys and values must not change later."""
        return False

    @property
    def needs_global_tokens(self) -> bool:
        """Return whether the mixer needs to know which tokens are global."""
        return False

    @property
    def tiling(self) -> Tiling:
        """Return whether attention masks are computed in tiles for this mixer."""
        return "never"

    @property
    def has_dropout(self) -> bool:
        """Return whether the mixer has dropout in training."""
        return getattr(self, "dropout", 0.0) > 0.0

    is_stochastic: ClassVar[bool] = False
    """True if anything besides dropout is random in training."""

    def build(self, width: int, positions: PositionsConfig, norm: NormConfig) -> nn.Module:
        """Build a module from (B, L, width) to (B, L, width)."""
        raise TypeError(f"{type(self).__name__} is an axis, not a mixer")

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        if is_split_by_direction(encoder.visibility):
            yield (
                "visibility both-ways needs a mixer with separate halves: choose mixer.kind lstm, "
                "or another visibility"
            )
        if not self.supports_any_visibility and (
            encoder.sliding_window is not None
            or not isinstance(encoder.visibility, BidirectionalVisibility | CausalVisibility)
        ):
            yield (
                "mixer supports bidirectional and causal visibility only: set visibility to one of "
                "these and sliding_window to null, or choose mixer.kind attention"
            )
        if not self.supports_positions(encoder.positions):
            yield (
                "mixer does not support relative positions: set positions.kind to learned, "
                "sinusoidal, rotary or none, or mixer.kind to attention that is scaled and has no "
                "global_projections"
            )

    def hidden_widths(self, embeddings_width: int, width: int, num_blocks: int) -> list[int]:
        """Return the widths of the hidden states before, between and after the blocks."""
        return [width] * (num_blocks + 1)

    def sublayer_flops(
        self, input_width: int, output_width: int, visibility: Visibility, length: int
    ) -> tuple[float, float]:
        """Return the FLOPs per token of a sublayer with these widths, in the form of ``flops``."""
        return self.flops(output_width, length)

    def build_sublayer(
        self,
        input_width: int,
        output_width: int,
        positions: PositionsConfig,
        norm: NormConfig,
        visibility: Visibility,
    ) -> nn.Module:
        """Build the module of a sublayer from (B, L, input_width) to (B, L, output_width)."""
        return self.build(output_width, positions, norm)


class NoMixerConfig(MixerConfig):
    """No token mixer, so no token depends on another: static word vectors."""

    kind: Literal["none"] = "none"

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        if any("s" in order for order in encoder.depth.sublayer_orders()):
            yield (
                "mixer.kind none is for encoders without attention: set depth.kind to none, or "
                "another mixer.kind"
            )
        yield from super().conflicts(encoder)


class MultiHeadConfig(MixerConfig):
    """A mixer with ``heads`` heads; None for the width divided by ``head_width``."""

    heads: int | None = Field(default=None, ge=1, le=4_096)
    head_width: int = Field(default=64, ge=1, le=65_536)
    bias: bool = True

    def head_shape(self, width: int) -> HeadShape:
        heads = self.heads or max(1, width // self.head_width)
        if width % heads:
            raise ValueError(f"width {width} is not divisible by {heads} heads")
        return HeadShape(heads, width // heads, width)

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        for _, width in encoder.block_widths:
            self.head_shape(width)
        yield from super().conflicts(encoder)


class MultiHeadModule(nn.Module):
    """A base class of attention with ``num_heads`` heads, an inner norm and an output matrix."""

    num_heads: int
    norm: nn.Module
    output: nn.Linear

    def project_output(
        self, attended: Tensor, hooks: HookPoint | None, gate: Tensor | None = None
    ) -> Tensor:
        """Project attended values (B, H, L, d), times a gate (B, L, H * d) if any, to (B, L, D)."""
        merged = tap(hooks, "context", attended).transpose(1, 2).flatten(2)
        merged = self.norm(merged if gate is None else merged * gate)
        if hooks is None or not hooks.is_requested("heads"):
            return tap(hooks, "output", self.output(merged))
        slices = self.output.weight.unflatten(1, (self.num_heads, -1)).permute(1, 2, 0)
        by_head = merged.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        total = tap(hooks, "heads", by_head @ slices).sum(1)
        bias = cast(Tensor | None, self.output.bias)
        return tap(hooks, "output", total if bias is None else total + bias)


def split_heads(x: Tensor, num_heads: int, num_parts: int) -> tuple[Tensor, ...]:
    """Split projections (B, L, num_parts * H * d) into parts (B, H, L, d)."""
    return x.unflatten(-1, (num_parts, num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
