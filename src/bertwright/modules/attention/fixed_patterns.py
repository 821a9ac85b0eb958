"""Attention with fixed patterns in some heads (Raganato et al. 2020)."""

from typing import ClassVar, Literal, get_args

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.modules.attention.kernels.inputs import AttentionInputs
from bertwright.modules.attention.kernels.kernels import KernelName, attend
from bertwright.modules.attention.mask import AttentionMask
from bertwright.modules.attention.positions import HeadShape, PositionsConfig, apply_rotary
from bertwright.modules.context import BlockContext
from bertwright.modules.hooks import tap
from bertwright.modules.mixer import MultiHeadConfig, MultiHeadModule, split_heads
from bertwright.modules.norms import NormConfig
from bertwright.modules.parameter_roles import ParameterRole

Pattern = Literal["current", "previous", "next", "left", "right", "start", "end"]

PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


class FixedPatternsConfig(MultiHeadConfig):
    """Attention whose first heads have fixed patterns, while the others are learned.

    ``current``, ``previous`` and ``next`` attend to one token; ``left`` and ``right`` to all tokens
    beyond the neighbour; ``start`` and ``end`` to the whole text. The weights of the last four grow
    with the cube of the position. If all allowed tokens have weight 0, a token attends to itself.
    The paper does not define the exact weights.
    """

    kind: Literal["fixed-patterns"] = "fixed-patterns"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    kernel: KernelName = "auto"
    patterns: tuple[Pattern, ...] = Field(default=PATTERNS, min_length=1)

    def flops(self, width: int, length: int) -> tuple[float, float]:
        shape = self.head_shape(width)
        num_learned = max(0, shape.num_heads - len(self.patterns))
        return 4 * width * (width + num_learned * shape.head_width), 4 * length * width

    def build(self, width: int, positions: PositionsConfig, norm: NormConfig) -> nn.Module:
        return FixedPatternAttention(self, self.head_shape(width), norm.build_inner_norm(width))


class FixedPatternAttention(MultiHeadModule):
    """Attention with fixed and learned heads; only learned heads have queries and keys.

    The scores of a fixed head are the logarithms of its weights.
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "learned_query_key.weight": ParameterRole("matrix", num_parts=2),
        "output.weight": ParameterRole("matrix", writes_residual=True),
    }

    def __init__(self, config: FixedPatternsConfig, head_shape: HeadShape, norm: nn.Module) -> None:
        super().__init__()
        self.head_shape, self.num_heads = head_shape, head_shape.num_heads
        self.dropout_rate = config.dropout
        self.kernel: KernelName = config.kernel
        self.patterns = config.patterns[: head_shape.num_heads]
        num_learned = head_shape.num_heads - len(self.patterns)
        self.learned_query_key = (
            nn.Linear(head_shape.width, 2 * num_learned * head_shape.head_width, config.bias)
            if num_learned
            else None
        )
        self.values = nn.Linear(head_shape.width, head_shape.width, config.bias)
        self.norm = norm
        self.output = nn.Linear(head_shape.width, head_shape.width, config.bias)

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map x (B, L, D) to (B, L, D)."""
        assert context.past is None, "EncoderConfig allows no memory here"
        shared, hooks = context.attention, context.hooks
        batch, length, _ = x.shape
        head_width = self.head_shape.head_width
        query = key = x.new_zeros(batch, self.num_heads, length, head_width)
        if self.learned_query_key is not None:
            num_fixed = len(self.patterns)
            learned = split_heads(self.learned_query_key(x), self.num_heads - num_fixed, 2)
            if shared.rotary is not None:
                learned = (apply_rotary(part, shared.rotary) for part in learned)
            query, key = (torch.cat((query[:, :num_fixed], part), dim=1) for part in learned)
        query, key = tap(hooks, "query", query), tap(hooks, "key", key)
        (value,) = split_heads(self.values(x), self.num_heads, 1)
        value = tap(hooks, "value", value)
        bias = self._score_bias(x, shared.mask)
        inputs = AttentionInputs(
            query, key, value, shared.mask, self.dropout_rate, context.dropout_rng, hooks, bias
        )
        return self.project_output(attend(inputs, self.kernel), hooks)

    def _score_bias(self, x: Tensor, mask: AttentionMask) -> Tensor:
        """Return the log weights of the fixed heads, (B or 1, H, L, L); 0 for learned heads."""
        length = x.shape[1]
        index = torch.arange(length, device=x.device)
        allowed = mask.allowed
        if mask.layout == "causal":
            allowed = (index[:, None] >= index)[None, None]
        if allowed is None:
            allowed = torch.ones(1, 1, length, length, dtype=torch.bool, device=x.device)
        allowed = allowed.expand(-1, self.head_shape.num_heads, -1, -1)[:, : len(self.patterns)]
        weights = torch.cat(
            [pattern_weights(p, index, allowed[:, n : n + 1]) for n, p in enumerate(self.patterns)],
            dim=1,
        )
        identity = torch.eye(length, device=x.device)
        for fallback in (identity * allowed, allowed.float()):
            weights = torch.where(weights.sum(-1, keepdim=True) == 0, fallback, weights)
        num_learned = self.head_shape.num_heads - len(self.patterns)
        logarithms = torch.log(weights)
        # Large weights get logarithms near 0, where bfloat16 is precise. Fully masked queries have
        # no weights.
        logarithms = logarithms - logarithms.amax(-1, keepdim=True).clamp(min=0.0)
        return nn.functional.pad(logarithms, (0, 0, 0, 0, 0, num_learned)).to(x.dtype)


def pattern_weights(pattern: Pattern, index: Tensor, allowed: Tensor) -> Tensor:
    """Return the unnormalised weights of a pattern, (B or 1, 1, L, L), query by key.

    Keys are counted from the first or the last key that the query may attend to.
    """
    query, key = index[:, None], index[None, :]
    from_start = allowed.cumsum(-1).float()
    from_end = from_start[..., -1:] + 1 - from_start
    return (
        allowed
        * {
            "current": key == query,
            "previous": key == query - 1,
            "next": key == query + 1,
            "left": from_start**3 * (key <= query - 2),
            "right": from_end**3 * (key >= query + 2),
            "start": from_end**3,
            "end": from_start**3,
        }[pattern]
    )
