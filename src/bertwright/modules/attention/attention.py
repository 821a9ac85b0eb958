"""Multi-head attention (Vaswani et al. 2017)."""

from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.modules.attention.cache import LayerKeyValues
from bertwright.modules.attention.global_attention import GlobalAttention
from bertwright.modules.attention.kernels.inputs import AttentionInputs
from bertwright.modules.attention.kernels.kernels import KernelName, attend
from bertwright.modules.attention.mask import Tiling
from bertwright.modules.attention.positions import (
    HeadShape,
    PositionsConfig,
    ScoreTerm,
    apply_rotary,
)
from bertwright.modules.context import BlockContext
from bertwright.modules.feed_forward import ACTIVATIONS, Activation
from bertwright.modules.hooks import tap
from bertwright.modules.mixer import MultiHeadConfig, MultiHeadModule, split_heads
from bertwright.modules.norms import NormConfig
from bertwright.modules.parameter_roles import ParameterRole

CROSS_ATTENTION_STREAM = 2000
"""Dropout stream of cross-attention within a block; larger than any number of blocks."""


class AttentionConfig(MultiHeadConfig):
    """Scaled dot-product attention with several heads.

    ``dropout`` is the dropout rate of attention weights. ``gate`` is the activation of another
    projection, which multiplies the context (Charpentier and Samuel 2024). ``global_projections``
    gives global tokens separate query, key and value projections (Beltagy et al. 2020). ``width``
    is the width of all heads together; None for the model's. If scores are not ``scaled`` by the
    square root of the head width, queries are initialised smaller instead (Raffel et al. 2020).
    """

    kind: Literal["attention"] = "attention"
    supports_memory: ClassVar[bool] = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    kernel: KernelName = "auto"
    gate: Activation | None = None
    global_projections: bool = False
    width: int | None = Field(default=None, ge=1, le=65_536)
    scaled: bool = True

    @model_validator(mode="after")
    def _check_global_projections(self) -> Self:
        if self.global_projections and (self.width is not None or not self.scaled):
            raise ValueError(
                "global_projections need scaled attention of the model's width: leave out width "
                "and scaled"
            )
        return self

    def supports_positions(self, positions: PositionsConfig) -> bool:
        supports_score_terms = self.scaled and not self.global_projections
        return supports_score_terms or positions.build_score_term(HeadShape(1, 2, 2)) is None

    @property
    def supports_cache(self) -> bool:
        return not self.global_projections

    @property
    def tiling(self) -> Tiling:
        tilings: dict[str, Tiling] = {"auto": "auto", "tiled": "always"}
        return tilings.get(self.kernel, "never")

    @property
    def needs_global_tokens(self) -> bool:
        return self.global_projections

    def head_shape(self, width: int) -> HeadShape:
        return replace(super().head_shape(self.width or width), width=width)

    def flops(self, width: int, length: int) -> tuple[float, float]:
        inner = self.head_shape(width).inner_width
        projections: float = (8 if self.gate is None else 10) * width * inner
        if self.global_projections:
            # Counted for one global token per sequence.
            projections += 4 * width**2 + 4 * width + 2 * width**2 / length
        return projections, 4 * length * inner

    def build(
        self,
        width: int,
        positions: PositionsConfig,
        norm: NormConfig,
        projection: nn.Module | None = None,
    ) -> nn.Module:
        """Build the module.

        ``projection`` computes queries, keys and values; None for a single matrix.
        """
        shape = self.head_shape(width)
        num_parts = 3 if self.gate is None else 4
        fused = projection or nn.Linear(width, num_parts * shape.inner_width, self.bias)
        term, global_attention = positions.build_score_term(shape), None
        if self.global_projections:
            global_attention = GlobalAttention(shape, self.bias, self.dropout)
        inner_norm = norm.build_inner_norm(shape.inner_width)
        return Attention(self, shape, fused, term, inner_norm, global_attention)

    def build_cross_attention(self, width: int, norm: NormConfig) -> nn.Module:
        """Build the cross-attention of a decoder to the encoder's output."""
        return CrossAttention(self, self.head_shape(width), norm)


class Attention(MultiHeadModule):
    """Multi-head attention with a fused projection of queries, keys, values and gates."""

    def __init__(
        self,
        config: AttentionConfig,
        head_shape: HeadShape,
        projection: nn.Module,
        score_term: ScoreTerm | None,
        norm: nn.Module,
        global_attention: GlobalAttention | None,
    ) -> None:
        super().__init__()
        self.inner_width, self.num_heads = head_shape.inner_width, head_shape.num_heads
        self.scale = None if config.scaled else 1.0
        self.dropout_rate, self.has_bias = config.dropout, config.bias
        self.kernel: KernelName = config.kernel
        self.may_compile = False
        self.gate = config.gate
        self.score_term = score_term
        self.projection = projection
        self.global_attention = global_attention
        self.norm = norm
        self.output = nn.Linear(head_shape.inner_width, head_shape.width, config.bias)

    @property
    def parameter_roles(self) -> dict[str, ParameterRole]:
        """Return the roles of the matrices."""
        parts = 3 if self.gate is None else 4
        return {
            "projection.weight": ParameterRole(
                "matrix", num_parts=parts, first_part_scale=self.query_init_scale
            ),
            "output.weight": ParameterRole("matrix", writes_residual=True),
        }

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map x (B, L, D) to (B, L, D); ``context.past`` adds keys and values of earlier tokens."""
        shared, hooks, past = context.attention, context.hooks, context.past
        fused, gate = self.projection(x), None
        if self.gate is not None:
            fused, gate = fused.split((3 * self.inner_width, self.inner_width), dim=-1)
            gate = ACTIVATIONS[self.gate](gate)
        query, key, value = split_heads(fused, self.num_heads, 3)
        if context.token_values is not None:
            value = value + split_heads(context.token_values, self.num_heads, 1)[0]
        if isinstance(past, LayerKeyValues):
            key, value = past.append(key, value)
        elif isinstance(past, Tensor):
            key, value = self._prepend_memory(past, key, value)
        if shared.rotary is not None:
            query = apply_rotary(query, shared.rotary)
            key = apply_rotary(key, shared.key_rotary or shared.rotary)
        query, key = tap(hooks, "query", query), tap(hooks, "key", key)
        value = tap(hooks, "value", value)
        bias, scale = shared.score_bias, self.scale
        if self.score_term is not None and shared.relative_positions is not None:
            bias = self.score_term(query, key, shared.relative_positions, self.projection)
            scale = self.score_term.scale
        inputs = AttentionInputs(
            query,
            key,
            value,
            shared.mask,
            self.dropout_rate,
            context.dropout_rng,
            hooks,
            bias,
            scale,
            may_compile=self.may_compile,
        )
        attended = attend(inputs, self.kernel)
        if self.global_attention is not None:
            attended = self.global_attention(x, attended, context)
        return self.project_output(attended, hooks, gate)

    @property
    def query_init_scale(self) -> float:
        """Return the scale of queries at initialisation, relative to keys."""
        return 1.0 if self.scale is None else (self.inner_width // self.num_heads) ** -0.5

    def _prepend_memory(self, past: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values after prepending the memory's, (B, H, M + L, d) each."""
        assert isinstance(self.projection, nn.Linear), "EncoderConfig allows no memory here"
        rows = slice(self.inner_width, 3 * self.inner_width)
        bias = self.projection.bias[rows] if self.has_bias else None
        fused = nn.functional.linear(past, self.projection.weight[rows], bias)
        past_key, past_value = split_heads(fused, self.num_heads, 2)
        return torch.cat((past_key, key), dim=2), torch.cat((past_value, value), dim=2)


class CrossAttention(Attention):
    """Attention to the hidden states of another stack, without positions."""

    def __init__(self, config: AttentionConfig, head_shape: HeadShape, norm: NormConfig) -> None:
        query = nn.Linear(head_shape.width, head_shape.inner_width, config.bias)
        super().__init__(
            config, head_shape, query, None, norm.build_inner_norm(head_shape.inner_width), None
        )
        self.key_value = nn.Linear(head_shape.width, 2 * head_shape.inner_width, config.bias)

    @property
    def parameter_roles(self) -> dict[str, ParameterRole]:
        """Return the roles of the matrices."""
        return {
            "projection.weight": ParameterRole("matrix", first_part_scale=self.query_init_scale),
            "key_value.weight": ParameterRole("matrix", num_parts=2),
            "output.weight": ParameterRole("matrix", writes_residual=True),
        }

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map x (B, L, D) to (B, L, D); with a cache, the source is projected only once."""
        source, past, hooks = context.attention.cross_attention, context.past, context.hooks
        assert source is not None, "a decoder needs a source"

        def project() -> tuple[Tensor, Tensor]:
            key, value = split_heads(self.key_value(source.hidden_states), self.num_heads, 2)
            return key, value

        is_cached = isinstance(past, LayerKeyValues)
        key, value = past.cross_key_values(project) if is_cached else project()
        (query,) = split_heads(self.projection(x), self.num_heads, 1)
        query = tap(hooks, "query", query)
        key, value = tap(hooks, "key", key), tap(hooks, "value", value)
        rng = context.dropout_rng
        rng = None if rng is None else rng.for_block(CROSS_ATTENTION_STREAM)
        inputs = AttentionInputs(
            query, key, value, source.mask, self.dropout_rate, rng, hooks, None, self.scale
        )
        return self.project_output(attend(inputs, self.kernel), hooks)
