"""Residual connections.

The output of a sublayer replaces its input, is added to it, is averaged with all earlier outputs,
or is added to one of two reversible streams.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.encoder.block import ResidualFunction, add_residual, no_residual
from bertwright.encoder.layer_stack import LayerStack
from bertwright.encoder.reversible import ReversibleLayerStack
from bertwright.modules.parameter_roles import ParameterRole

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig


class ResidualConfig(Config):
    """The residual connections of an encoder."""

    needs_sublayer_outputs: ClassVar[bool] = False
    """True if sublayers read all earlier outputs, so no block may be skipped."""

    is_reversible: ClassVar[bool] = False
    """True if activations are recomputed in the backward pass instead of stored."""

    def residual_function(self, block: int) -> ResidualFunction:
        """Return the residual function of a block."""
        return add_residual

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        for block, (before, after) in enumerate(pairwise(encoder.hidden_widths)):
            if before != after and self.residual_function(block) is add_residual:
                yield (
                    f"residual: block {block} has input width {before} and output width {after}, "
                    f"which cannot be added: set residual.kind to none"
                )

    def with_blocks(self, blocks: Sequence[int]) -> "ResidualConfig":
        """Return the residual connections of an encoder with only these blocks, in order."""
        return self

    def build_depth_average(self, num_outputs: int) -> nn.Module | None:
        """Build the average after a sublayer, given the number of outputs; None for none."""
        return None

    def build_layer_stack(self, layer_stack: LayerStack) -> LayerStack:
        """Return the layer stack to use, given the one that the depth builds."""
        return layer_stack


class AdditiveResidualConfig(ResidualConfig):
    """Sublayer outputs are added to their inputs (He et al. 2016), from block ``start`` on.

    In earlier blocks they replace their inputs (``start`` is 1 in ELMo).
    """

    kind: Literal["plain"] = "plain"
    start: int = Field(default=0, ge=0, le=1_024)

    def residual_function(self, block: int) -> ResidualFunction:
        return add_residual if block >= self.start else no_residual

    def with_blocks(self, blocks: Sequence[int]) -> ResidualConfig:
        return self.model_copy(update={"start": sum(block < self.start for block in blocks)})


class NoResidualConfig(ResidualConfig):
    """Sublayer outputs replace their inputs."""

    kind: Literal["none"] = "none"

    def residual_function(self, block: int) -> ResidualFunction:
        return no_residual


class DepthWeightedResidualConfig(ResidualConfig):
    """A learned weighted sum of the embeddings and all sublayer outputs so far.

    It is initialised to the last output (Pagliardini et al. 2024; after every sublayer, Charpentier
    and Samuel 2024). All outputs stay in memory until the last block.
    """

    kind: Literal["weighted"] = "weighted"

    needs_sublayer_outputs: ClassVar[bool] = True

    def build_depth_average(self, num_outputs: int) -> nn.Module:
        return DepthWeightedAverage(num_outputs + 1)


class DepthWeightedAverage(nn.Module):
    """A learned weighted sum of all outputs so far."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"weights": ParameterRole("mixture")}

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(num_outputs))

    def forward(self, sublayer_outputs: list[Tensor]) -> Tensor:
        """Map outputs (B, L, D) to their weighted sum (B, L, D)."""
        total = self.weights[0] * sublayer_outputs[0]
        for weight, output in zip(self.weights[1:], sublayer_outputs[1:], strict=True):
            total = torch.addcmul(total, weight, output)
        return total


class ReversibleResidualConfig(ResidualConfig):
    """Two reversible streams that both start as the embeddings.

    Attention reads the second stream and adds to the first; the feed-forward reads the first and
    adds to the second. The result is the mean of the streams (Gomez et al. 2017; Kitaev et al.
    2020, section 3).
    """

    kind: Literal["reversible"] = "reversible"

    is_reversible: ClassVar[bool] = True

    def build_layer_stack(self, layer_stack: LayerStack) -> LayerStack:
        return ReversibleLayerStack()

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        yield from super().conflicts(encoder)
        depth, positions = encoder.depth, encoder.positions
        is_plain_stack = (
            all(order == "sf" for order in depth.sublayer_orders()) and not depth.skips_blocks
        )
        if not encoder.norm.is_pre_norm or not is_plain_stack or not depth.runs_every_block:
            yield (
                "residual reversible needs norm.placement pre or sub, and blocks of attention and "
                "feed-forward that all run: set depth.kind to stack, without drop and every"
            )
        if encoder.memory_length or positions.is_relative or positions.is_per_block:
            yield (
                "residual reversible needs positions that are added to the embeddings or rotary, "
                "and memory_length 0"
            )
