"""Linear-time attention with random features (Choromanski et al. 2021)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.rng import stream_key
from bertwright.modules.attention.positions import HeadShape, PositionsConfig, apply_rotary
from bertwright.modules.context import BlockContext
from bertwright.modules.dtypes import at_least_float32
from bertwright.modules.hooks import tap
from bertwright.modules.mixer import MultiHeadConfig, MultiHeadModule, split_heads
from bertwright.modules.norms import NormConfig
from bertwright.modules.parameter_roles import ParameterRole

CHUNK_LENGTH = 64
"""Number of queries that causal attention computes at once."""

EPSILON = 1e-6
"""Constant that is added to every feature, so that no sum of features is 0."""

MASKED_EXPONENT = -1e30
"""Exponent of the features of padding: below all others, and finite in float32."""


class RandomFeaturesConfig(MultiHeadConfig):
    """Attention with exp(q . k) approximated by ``features`` positive random features (FAVOR+).

    ``function`` "relu" replaces exp(q . k) by products relu(w . q) relu(w . k), the generalised
    attention of section 2.2. The features are orthogonal in groups. They are fixed, drawn from
    ``seed``, and shared by all blocks, or with ``redraw`` drawn again for every block after that
    many training steps; a saved model has the last ones. The mask must be bidirectional or causal,
    and there is no dropout of attention weights.
    """

    kind: Literal["random-features"] = "random-features"
    features: int = Field(default=256, ge=1, le=65_536)
    function: Literal["exponential", "relu"] = "exponential"
    seed: int = Field(default=0, ge=0)
    redraw: int | None = Field(default=None, ge=1)

    supports_any_visibility: ClassVar[bool] = False

    def flops(self, width: int, length: int) -> tuple[float, float]:
        heads = self.head_shape(width).num_heads
        return 8 * width**2 + 8 * width * self.features + 2 * heads * self.features, 0.0

    def build(self, width: int, positions: PositionsConfig, norm: NormConfig) -> nn.Module:
        return RandomFeatureAttention(self, self.head_shape(width), norm.build_inner_norm(width))


class RandomFeatureAttention(MultiHeadModule):
    """Attention that first sums products of key features and values, then applies each query."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "projection.weight": ParameterRole("matrix", num_parts=3),
        "output.weight": ParameterRole("matrix", writes_residual=True),
    }

    def __init__(
        self, config: RandomFeaturesConfig, head_shape: HeadShape, norm: nn.Module
    ) -> None:
        super().__init__()
        self.num_heads, self.function = head_shape.num_heads, config.function
        self.projection = nn.Linear(head_shape.width, 3 * head_shape.width, config.bias)
        self.norm = norm
        self.output = nn.Linear(head_shape.width, head_shape.width, config.bias)
        self.config, self.head_width = config, head_shape.head_width
        features = orthogonal_features(config.features, self.head_width, config.seed)
        self.random_features: Tensor
        if config.redraw is None:
            self.random_features = features
        else:
            self.register_buffer("random_features", features)

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map x (B, L, D) to (B, L, D)."""
        assert context.past is None, "EncoderConfig allows no memory here"
        shared, hooks = context.attention, context.hooks
        query, key, value = split_heads(self.projection(x), self.num_heads, 3)
        if shared.rotary is not None:
            query = apply_rotary(query, shared.rotary)
            key = apply_rotary(key, shared.rotary)
        query, key = tap(hooks, "query", query), tap(hooks, "key", key)
        value = tap(hooks, "value", value)
        query, key, value = (at_least_float32(t) for t in (query, key, value))
        attended = self._attend(query, key, value, context)
        return self.project_output(attended.to(x.dtype), hooks)

    @torch.no_grad()
    def draw_features(self, *stream: int) -> None:
        """Replace the features by those of a random stream."""
        size, seed = self.config.features, self.config.seed
        self.random_features.copy_(orthogonal_features(size, self.head_width, seed, *stream))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, context: BlockContext) -> Tensor:
        mask, hooks = context.attention.mask, context.hooks
        assert mask.pattern is not None, "EncoderConfig allows no other visibility"
        random_features = self.random_features.to(query)
        if self.function == "relu":
            query_features, key_features = (relu_features(x, random_features) for x in (query, key))
        else:
            query_features = softmax_features(query, random_features, (-1,))
            key_features = softmax_features(key, random_features, (-2, -1), mask.is_real)
        if mask.is_real is not None:
            key_features = key_features * mask.is_real[:, None, :, None]
        if hooks is not None and hooks.is_requested("weights"):
            weights = query_features @ key_features.transpose(-1, -2)
            weights = weights.tril() if mask.pattern == "causal" else weights
            return tap(hooks, "weights", normalise(weights, weights.sum(-1, keepdim=True))) @ value
        if mask.pattern == "causal":
            return causal_linear_attention(query_features, key_features, value)
        sums = torch.einsum("bhlm,bhld->bhmd", key_features, value)
        totals = torch.einsum("bhlm,bhm->bhl", query_features, key_features.sum(2))
        return normalise(torch.einsum("bhlm,bhmd->bhld", query_features, sums), totals[..., None])


def orthogonal_features(num_features: int, width: int, seed: int, *stream: int) -> Tensor:
    """Return Gaussian vectors (num_features, width), orthogonal in groups of ``width``."""
    generator = torch.Generator().manual_seed(stream_key(seed, "random features", *stream) >> 1)
    groups: list[Tensor] = []
    for _ in range(-(-num_features // width)):
        square = torch.randn(width, width, generator=generator, device="cpu")
        other = torch.randn(width, width, generator=generator, device="cpu")
        lengths = other.norm(dim=1, keepdim=True)
        groups.append(torch.linalg.qr(square).Q.T * lengths)
    return torch.cat(groups)[:num_features]


def softmax_features(
    x: Tensor, random_features: Tensor, max_dims: tuple[int, ...], is_real: Tensor | None = None
) -> Tensor:
    """Return positive features (B, H, L, m) of queries or keys x (B, H, L, d).

    A feature is exp(w . x - |x|^2 / 2) for a row w of ``random_features``, with x divided by the
    fourth root of its width. To avoid overflow, the largest exponent over ``max_dims`` is
    subtracted. It cancels if all keys of a head have the same one; each query may have its own.
    Padding, where ``is_real`` (B, L) is False, does not count.
    """
    scaled = x * x.shape[-1] ** -0.25
    exponent = scaled @ random_features.T - scaled.square().sum(-1, keepdim=True) / 2
    if is_real is not None:
        exponent = exponent.masked_fill(~is_real[:, None, :, None], MASKED_EXPONENT)
    largest = exponent.detach().amax(max_dims, keepdim=True)
    return torch.exp(exponent - largest) + EPSILON


def relu_features(x: Tensor, random_features: Tensor) -> Tensor:
    """Return relu(w . x) for every random feature w, (B, H, L, m), for x (B, H, L, d)."""
    return torch.relu(x * x.shape[-1] ** -0.25 @ random_features.T) + EPSILON


def causal_linear_attention(query_features: Tensor, key_features: Tensor, value: Tensor) -> Tensor:
    """Return the weighted mean of the values up to each query, computed chunk by chunk."""
    sums = value.new_zeros(*key_features.shape[:2], key_features.shape[3], value.shape[3] + 1)
    ones = value.new_ones(*value.shape[:3], 1)
    values_and_ones = torch.cat((value, ones), dim=-1)
    outputs: list[Tensor] = []
    inputs = (query_features, key_features, values_and_ones)
    # An exported graph serves any length, so the whole sequence is one chunk.
    is_whole = torch.compiler.is_exporting()
    chunks = (
        [inputs] if is_whole else zip(*(t.split(CHUNK_LENGTH, dim=2) for t in inputs), strict=True)
    )
    for q, k, v in chunks:
        outputs.append(q @ sums + (q @ k.transpose(-1, -2)).tril() @ v)
        sums = sums + k.transpose(-1, -2) @ v
    output = torch.cat(outputs, dim=2)
    return normalise(output[..., :-1], output[..., -1:])


def normalise(sums: Tensor, total: Tensor) -> Tensor:
    """Divide sums by their total; 0 where the total is 0 (fully masked)."""
    return sums / total.masked_fill(total == 0, 1)
