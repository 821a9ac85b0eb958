"""Bottleneck blocks, with a narrower residual stream inside (Sun et al. 2020)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Settings
from bertwright.encoder.block import Block
from bertwright.encoder.residual import AdditiveResidualConfig
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.context import BlockContext
from bertwright.modules.hooks import tap
from bertwright.modules.norms import NoNorm, NormConfig
from bertwright.modules.parameter_roles import ParameterRole

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig


class BottleneckConfig(Settings):
    """Sublayers of width ``width`` between an input and an output projection.

    The input projection gives the inner residual stream. Values are computed from the outer hidden
    states. Queries and keys are computed from them too, or, if ``shared``, from another projection
    of them. The output projection is added to the outer hidden states (section 3.1, figure 1). The
    inner width may exceed the outer one, as in the paper's teacher.
    """

    width: int = Field(default=128, ge=1, le=65_536)
    shared: bool = True

    def flops(self, outer_width: int) -> float:
        """Return the FLOPs per token of a block, without its sublayers."""
        num_projections, num_wide = (3, 1) if self.shared else (2, 3)
        extra_width = num_wide * (outer_width - self.width)
        return 2 * self.width * (num_projections * outer_width + extra_width)

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        mixer, orders = encoder.mixer, encoder.depth.sublayer_orders()
        is_plain = (
            isinstance(mixer, AttentionConfig)
            and mixer.scaled
            and mixer.gate is None
            and mixer.width is None
            and not mixer.global_projections
        )
        if not is_plain or any(order.count("s") != 1 for order in orders):
            yield (
                "bottleneck needs plain attention in every block: set mixer.kind to attention, "
                "mixer.scaled to true, mixer.gate and mixer.width to null, "
                "mixer.global_projections to false and depth.kind to stack"
            )
        is_additive = encoder.residual == AdditiveResidualConfig()
        if encoder.norm.is_pre_norm or not is_additive or encoder.memory_length:
            yield (
                "bottleneck has its own residual stream: set norm.placement to post, residual.kind "
                "to plain and memory_length to 0"
            )
        if encoder.positions.projects_distances or encoder.positions.is_per_block:
            yield (
                "bottleneck does not support log-buckets or every-block positions: choose another "
                "positions.kind"
            )

    def build_qkv_projection(self, outer_width: int, bias: bool, norm: NormConfig) -> nn.Module:
        """Build the projection from the outer hidden states to queries, keys and values."""
        if not self.shared:
            return nn.Linear(outer_width, 3 * self.width, bias)
        return BottleneckQKVProjection(outer_width, self.width, bias, norm)

    def build_projections(
        self, outer_width: int, norm: NormConfig
    ) -> tuple[nn.Module, nn.Module, nn.Module]:
        """Build the input projection, the output projection, and the norm after it."""
        output_projection = nn.Linear(self.width, outer_width)
        return (
            BottleneckProjection(outer_width, self.width, norm),
            output_projection,
            norm.build(outer_width),
        )


class BottleneckProjection(nn.Module):
    """A dense layer and a norm from (B, L, D) to (B, L, d)."""

    def __init__(self, outer_width: int, inner_width: int, norm: NormConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(outer_width, inner_width)
        self.norm = norm.build(inner_width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.dense(x))

    @torch.no_grad()
    def fold_norm(self) -> None:
        """Fold the norm into the matrix if the norm is only a gain and a bias."""
        if isinstance(self.norm, NoNorm):
            self.dense.weight.mul_(self.norm.weight[:, None])
            self.dense.bias.mul_(self.norm.weight).add_(self.norm.bias)
            self.norm = nn.Identity()


class BottleneckQKVProjection(nn.Module):
    """A projection from x (B, L, D) to queries, keys and values (B, L, 3 * d).

    Queries and keys are computed from a shared projection of x, values from x itself.
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "query_key.weight": ParameterRole("matrix", num_parts=2)
    }

    def __init__(self, outer_width: int, inner_width: int, bias: bool, norm: NormConfig) -> None:
        super().__init__()
        self.shared_projection = BottleneckProjection(outer_width, inner_width, norm)
        self.query_key = nn.Linear(inner_width, 2 * inner_width, bias)
        self.value = nn.Linear(outer_width, inner_width, bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.query_key(self.shared_projection(x)), self.value(x)), dim=-1)


class BottleneckBlock(Block):
    """A block between an input and an output projection, with an outer residual."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "output_projection.weight": ParameterRole("matrix", writes_residual=True)
    }

    def __init__(self, block: Block, projections: tuple[nn.Module, nn.Module, nn.Module]) -> None:
        sublayers, norms = dict(block.sublayers.items()), dict(block.norms.items())
        super().__init__(
            sublayers,
            norms,
            {},
            block.is_pre_norm,
            block.dropout,
            block.residual_function,
            block.output_widths,
        )
        self.input_projection, self.output_projection, self.norm = projections

    @property
    def supports_output_positions(self) -> bool:
        return False

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map x (B, L, D) to (B, L, D)."""
        x = tap(context.hooks, "input", x)
        inner = self.run_sublayers(self.input_projection(x), context, attention_input=x)
        output = self.output_projection(inner)
        change = self.dropout(output, context.dropout_rng, 2 + len(self.sublayers))
        return self.norm(self.residual_function(x, change))
