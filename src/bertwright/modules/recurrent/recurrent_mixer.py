"""Recurrent layers as token mixers: one layer for each reading direction."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import Tensor, nn

from bertwright.modules.attention.cache import RecurrentCarry
from bertwright.modules.attention.mask import (
    Visibility,
    is_split_by_direction,
    scan_directions,
)
from bertwright.modules.attention.mask.token_runs import TokenRuns
from bertwright.modules.attention.positions import PositionsConfig
from bertwright.modules.context import BlockContext
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.hooks import HookPoint, child_hooks, tap
from bertwright.modules.mixer import MixerConfig
from bertwright.modules.norms import NormConfig

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig

ATTENTION_TAPS = ("query", "key", "value", "scores", "weights", "context", "heads")
"""Hook names that a recurrent mixer does not have."""


class RecurrentConfig(MixerConfig):
    """A recurrent layer for each reading direction of the attention rule.

    The layer reads forward if the rule is ``causal``, backward if it is ``reversed``. Two layers
    each compute one half of the hidden states: with ``both-ways`` from the same half of their
    input, so that no half has seen both sides, and with ``bidirectional`` from the whole input.
    """

    supports_any_visibility: ClassVar[bool] = False
    is_recurrent: ClassVar[bool] = True

    def build_layer(self, input_width: int, output_width: int) -> "RecurrentLayer":
        """Build the layer of one direction."""
        raise TypeError(f"{type(self).__name__} is an axis, not a mixer")

    def layer_flops(self, input_width: int, output_width: int) -> float:
        """Return the FLOPs per token of the layer of one direction."""
        raise TypeError(f"{type(self).__name__} is an axis, not a mixer")

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        directions, orders = scan_directions(encoder.visibility), encoder.depth.sublayer_orders()
        if not directions or encoder.sliding_window is not None:
            yield (
                "mixer is recurrent: set visibility to causal, reversed, both-ways or "
                "bidirectional, with or without document, and sliding_window to null"
            )
        if not encoder.positions.supports_recurrence:
            yield "mixer is recurrent and has no distances: set positions.kind to none"
        split_widths = encoder.hidden_widths[encoder.num_directions < len(directions) :]
        if odd_widths := [width for width in split_widths if width % len(directions)]:
            yield f"a recurrent mixer that reads both ways needs even widths, not {odd_widths[0]}"
        if any("s" not in order for order in orders):
            yield "a recurrent mixer must be in every block: set depth.kind to stack"
        if encoder.depth.sharing != "none":
            yield "a recurrent mixer cannot be shared by blocks: set depth.sharing to none"
        if encoder.norm.placement == "sub":
            yield "a recurrent mixer has no inner norm: set norm.placement to pre or post"
        if encoder.memory_length and (encoder.memory_length != 1 or len(directions) != 1):
            yield (
                "memory_length of a recurrent mixer is for the state of one direction: set it to 1 "
                "and visibility to causal or reversed, or memory_length to 0"
            )

    def hidden_widths(self, embeddings_width: int, width: int, num_blocks: int) -> list[int]:
        return [embeddings_width, *[width] * num_blocks] if num_blocks else [width]

    def sublayer_flops(
        self, input_width: int, output_width: int, visibility: Visibility, length: int
    ) -> tuple[float, float]:
        num_layers = len(scan_directions(visibility))
        if is_split_by_direction(visibility):
            input_width //= num_layers
        return num_layers * self.layer_flops(input_width, output_width // num_layers), 0.0

    def build_sublayer(
        self,
        input_width: int,
        output_width: int,
        positions: PositionsConfig,
        norm: NormConfig,
        visibility: Visibility,
    ) -> nn.Module:
        return RecurrentMixer(self, input_width, output_width, visibility)


class RecurrentLayer(nn.Module):
    """A base class of recurrent layers that read in one direction."""

    def forward(
        self,
        x: Tensor,
        runs: TokenRuns,
        direction_index: int,
        dropout_rng: DropoutRng | None = None,
        hooks: HookPoint | None = None,
        past: RecurrentCarry | None = None,
    ) -> Tensor:
        """Map x (B, L, input_width) to (B, L, output_width) along the runs of a direction."""
        raise TypeError(f"{type(self).__name__} is a base class, not a layer")


class RecurrentMixer(nn.Module):
    """One recurrent layer for each direction; two layers each compute half of the hidden states."""

    def __init__(
        self,
        config: RecurrentConfig,
        input_width: int,
        output_width: int,
        visibility: Visibility,
    ) -> None:
        super().__init__()
        self.directions = scan_directions(visibility)
        self.splits_input = is_split_by_direction(visibility)
        parts = len(self.directions)
        layer_input_width = input_width // parts if self.splits_input else input_width
        self.direction_layers = nn.ModuleList(
            config.build_layer(layer_input_width, output_width // parts) for _ in self.directions
        )
        # torch.compile would unroll every step. A decorator would import the compiler too early.
        self.run = cast(Callable[..., Tensor], torch.compiler.disable(RecurrentMixer._run))

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map x (B, L, input_width) to (B, L, output_width)."""
        if context.hooks is not None:
            context.hooks.reject_missing(ATTENTION_TAPS, "a recurrent mixer has no attention")
        return tap(context.hooks, "output", self.run(self, x, context))

    def layer_inputs(self, x: Tensor) -> list[Tensor]:
        """Return the input of each layer, given the input (B, L, input_width) of the mixer."""
        num_layers = len(self.directions)
        return [*x.chunk(num_layers, dim=-1)] if self.splits_input else [x] * num_layers

    def _run(self, x: Tensor, context: BlockContext) -> Tensor:
        outputs: list[Tensor] = []
        for number, (direction, layer, part) in enumerate(
            zip(self.directions, self.direction_layers, self.layer_inputs(x), strict=True)
        ):
            runs, hooks = context.attention.runs[direction], child_hooks(context.hooks, direction)
            outputs.append(layer(part, runs, number, context.dropout_rng, hooks, context.past))
        return torch.cat(outputs, dim=-1)
