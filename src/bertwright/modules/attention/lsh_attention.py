"""Locality-sensitive hashing attention (Kitaev et al. 2020, section 2)."""

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from bertwright.modules.attention.kernels.inputs import WEIGHTS_STREAM, AttentionInputs
from bertwright.modules.attention.kernels.kernels import attend
from bertwright.modules.attention.mask import AttentionMask
from bertwright.modules.attention.positions import HeadShape, PositionsConfig, apply_rotary
from bertwright.modules.context import BlockContext
from bertwright.modules.dropout_rng import DropoutRng, dropout, gaussian
from bertwright.modules.dtypes import at_least_float32
from bertwright.modules.hooks import tap
from bertwright.modules.mixer import MultiHeadConfig, MultiHeadModule, split_heads
from bertwright.modules.norms import NormConfig
from bertwright.modules.parameter_roles import ParameterRole

HASH_DIRECTIONS_STREAM = 73
"""Random stream of the hash directions within a block."""

SELF_SCORE = -1e5
"""Score of a token with itself, so low that it only counts if nothing else is allowed."""

# Shapes: H heads of width d, R rounds, C chunks of m tokens, P = C m positions with padding.


class LSHAttentionConfig(MultiHeadConfig):
    """Attention to tokens in the same hash bucket, with shared queries and keys (LSH).

    Keys are normalised, and scores are not scaled (as in the released code). In each of ``rounds``
    rounds a vector is hashed to one of ``buckets`` buckets, by the nearest of as many random
    directions. Within its bucket a token attends to the ``chunk`` tokens before it and, unless the
    mask is causal, after it. The directions depend on the step and the block in training, otherwise
    on ``seed``.

    In the paper, tokens are sorted by bucket and split into chunks, and attend to their chunk and
    the one before. With that, later tokens move the chunk borders, which leaks information.
    """

    kind: Literal["hashing"] = "hashing"
    bias: bool = False
    dropout: float = Field(default=0.0, ge=0, lt=1)
    rounds: int = Field(default=1, ge=1, le=1_024)
    buckets: int = Field(default=64, ge=1, le=1 << 20)
    chunk: int = Field(default=64, ge=1, le=1 << 20)
    seed: int = Field(default=0, ge=0)

    supports_any_visibility: ClassVar[bool] = False
    is_stochastic: ClassVar[bool] = True

    @model_validator(mode="after")
    def _check_even_buckets(self) -> Self:
        if self.buckets > 1 and self.buckets % 2:
            raise ValueError(f"buckets must be 1 or even, not {self.buckets}")
        return self

    def head_shape(self, width: int) -> HeadShape:
        heads = self.heads or max(1, width // self.head_width)
        return HeadShape(heads, self.head_width, width)

    def flops(self, width: int, length: int) -> tuple[float, float]:
        shape = self.head_shape(width)
        inner = shape.inner_width
        hashing = inner * self.rounds * (self.buckets if self.buckets > 1 else 0)
        if self.sees_all(length):
            return 6 * width * inner + hashing, 4 * length * inner
        # With a causal mask, a token is compared with two chunks in every round.
        return 6 * width * inner + hashing + 8 * self.chunk * inner * self.rounds, 0.0

    def sees_all(self, length: int) -> bool:
        """Return whether a sequence is no longer than all chunks that a token is compared with."""
        return length <= 2 * self.chunk * self.rounds

    def build(self, width: int, positions: PositionsConfig, norm: NormConfig) -> nn.Module:
        shape = self.head_shape(width)
        return LSHAttention(self, shape, norm.build_inner_norm(shape.inner_width))


class LSHAttention(MultiHeadModule):
    """LSH attention: sort, split, attend within chunks, restore the order, combine the rounds."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "projection.weight": ParameterRole("matrix", num_parts=2),
        "output.weight": ParameterRole("matrix", writes_residual=True),
    }

    def __init__(self, config: LSHAttentionConfig, head_shape: HeadShape, norm: nn.Module) -> None:
        super().__init__()
        self.config, self.head_shape, self.num_heads = config, head_shape, head_shape.num_heads
        inner = head_shape.inner_width
        self.projection = nn.Linear(head_shape.width, 2 * inner, config.bias)
        self.norm = norm
        self.output = nn.Linear(inner, head_shape.width, config.bias)

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map x (B, L, D) to (B, L, D)."""
        assert context.past is None, "EncoderConfig allows no memory here"
        shared, hooks = context.attention, context.hooks
        query_key, value = split_heads(self.projection(x), self.num_heads, 2)
        if shared.rotary is not None:
            query_key = apply_rotary(query_key, shared.rotary)
        query_key, value = tap(hooks, "query", query_key), tap(hooks, "value", value)
        # Weights are computed in float32 at least, products in the dtype of the block.
        attended = self._attend(at_least_float32(query_key), value, context)
        return self.project_output(attended.to(x.dtype), hooks)

    def _attend(self, query_key: Tensor, value: Tensor, context: BlockContext) -> Tensor:
        mask, dropout_rng, hooks = context.attention.mask, context.dropout_rng, context.hooks
        assert mask.pattern is not None, "EncoderConfig allows no other visibility"
        length, dtype = query_key.shape[2], value.dtype
        # An exported graph serves any length, so it computes all pairs.
        if torch.compiler.is_exporting() or self.config.sees_all(length):
            return self._attend_to_all(query_key, value, context)
        num_padding = -length % self.config.chunk
        query_key, value = (pad(t, (0, 0, 0, num_padding)) for t in (query_key, value))
        buckets = self._hash(query_key.to(dtype), dropout_rng)
        if num_padding or mask.is_real is not None:
            is_real = mask.is_real
            if is_real is None:
                is_real = query_key.new_ones(1, length, dtype=torch.bool)
            buckets = self._isolate_padding(buckets, ~pad(is_real, (0, num_padding)))
        causal = mask.pattern == "causal"
        order = BucketOrder(buckets, self.config.chunk, causal)
        query = order.to_chunks(query_key)
        key = order.with_neighbours(normalize(query, dim=-1)).to(dtype)
        scores = (query.to(dtype) @ key.transpose(-1, -2)).to(query_key.dtype)
        scores = scores.masked_fill(order.masked, -torch.inf).masked_fill(order.is_self, SELF_SCORE)
        # The product is normalised instead of the weights, as it is smaller.
        highest = scores.detach().amax(dim=-1, keepdim=True)
        weights = torch.exp(scores - highest)
        sums = weights.sum(dim=-1, keepdim=True)
        round_weights = torch.softmax(order.from_chunks(highest + torch.log(sums)), dim=2)
        if hooks is not None and hooks.is_requested("weights"):
            dense = order.to_dense(weights / sums, round_weights)[..., :length, :length]
            return tap(hooks, "weights", dense) @ value[:, :, :length].to(dense.dtype)
        weights = dropout(weights, self.config.dropout, dropout_rng, WEIGHTS_STREAM)
        attended = (weights.to(dtype) @ order.with_neighbours(order.to_chunks(value))) / sums
        return (round_weights * order.from_chunks(attended)).sum(2)[:, :, :length]

    def _attend_to_all(self, query_key: Tensor, value: Tensor, context: BlockContext) -> Tensor:
        """Return the same result from one softmax over all pairs.

        Each pair counts once for every round in which it is allowed.
        """
        mask, dropout_rng = context.attention.mask, context.dropout_rng
        buckets = self._hash(query_key.to(value.dtype), dropout_rng)
        if mask.is_real is not None:
            buckets = self._isolate_padding(buckets, ~mask.is_real)
        ranks = _invert_permutation(_sort_by_bucket(buckets)).int()
        buckets = buckets.int()
        distance = ranks[..., None] - ranks[..., None, :]
        too_far = _is_too_far(distance, self.config.chunk, mask.pattern == "causal")
        allowed = (buckets[..., None] == buckets[..., None, :]) & ~too_far
        device, rounds = query_key.device, self.config.rounds
        counts = torch.arange(rounds + 1, dtype=query_key.dtype, device=device)
        is_self = torch.eye(query_key.shape[2], dtype=torch.bool, device=device)
        bias = torch.where(is_self, SELF_SCORE, torch.log(counts)[allowed.sum(2)])
        query, key = query_key.to(value.dtype), normalize(query_key, dim=-1).to(value.dtype)
        rate, no_mask = self.config.dropout, AttentionMask("all")
        inputs = AttentionInputs(
            query, key, value, no_mask, rate, dropout_rng, context.hooks, bias, scale=1.0
        )
        return attend(inputs, "auto")

    def _isolate_padding(self, buckets: Tensor, is_padding: Tensor) -> Tensor:
        """Return buckets with a separate one for each padding token; the mask is (B or 1, P)."""
        unique = self.config.buckets + torch.arange(buckets.shape[-1], device=buckets.device)
        return torch.where(is_padding[:, None, None], unique, buckets)

    def _hash(self, query_key: Tensor, dropout_rng: DropoutRng | None) -> Tensor:
        """Return the bucket of every token in every round, (B, H, R, P) int64."""
        rounds, buckets = self.config.rounds, self.config.buckets
        if buckets == 1:
            batch, heads, length, _ = query_key.shape
            return query_key.new_zeros(batch, heads, rounds, length, dtype=torch.int64)
        shape = (self.head_shape.num_heads, rounds, self.head_shape.head_width, buckets // 2)
        directions = gaussian(
            shape, dropout_rng, self.config.seed, HASH_DIRECTIONS_STREAM, query_key
        )
        projected = query_key.detach()[:, :, None] @ directions
        nearest = projected.abs().argmax(dim=-1)
        is_opposite = projected.gather(-1, nearest[..., None])[..., 0] < 0
        return nearest + buckets // 2 * is_opposite


class BucketOrder:
    """An order of tokens by ``buckets`` (B, H, R, P), split into chunks of ``chunk_size``.

    Values in chunks are (B, H, R, C, m, ...). With the preceding chunk and, unless ``causal``, the
    following one, they are (B, H, R, C, k m, ...), where k is 2 or 3.
    """

    def __init__(self, buckets: Tensor, chunk_size: int, causal: bool) -> None:
        self.permutation = _sort_by_bucket(buckets)
        self.inverse_permutation = _invert_permutation(self.permutation)
        self.chunk_size, self.num_visible_chunks = chunk_size, 2 if causal else 3
        bucket = self._split_chunks(buckets.gather(-1, self.permutation))[..., None]
        # Two tokens of a bucket are as far apart in this order as within the bucket.
        rank = torch.arange(self.num_visible_chunks * chunk_size, device=buckets.device)
        distance = rank[:chunk_size, None] + chunk_size - rank
        self.is_self = distance == 0
        """(m, k m) bool: True where the neighbour is the token itself."""
        self.masked = _is_too_far(distance, chunk_size, causal) | (
            bucket != _transpose(self.with_neighbours(bucket, fill_value=-1))
        )
        """(B, H, R, C, m, k m) bool: True where a token may not attend to the neighbour."""

    def to_chunks(self, values: Tensor) -> Tensor:
        """Sort values (B, H, P, w), which all rounds share, and split them into chunks."""
        values = values[:, :, None]
        ordered = PermuteVectors.apply(values, self.permutation, self.inverse_permutation)
        return ordered.unflatten(3, (-1, self.chunk_size))

    def from_chunks(self, values: Tensor) -> Tensor:
        """Return values (B, H, R, C, m, w) in the order of the sequence, (B, H, R, P, w)."""
        return PermuteVectors.apply(
            values.flatten(3, 4), self.inverse_permutation, self.permutation
        )

    def with_neighbours(self, values: Tensor, fill_value: float = 0.0) -> Tensor:
        """Return chunks (B, H, R, C, m, w) with their neighbours, filled beyond the ends."""
        padded = pad(values, (0, 0, 0, 0, 1, self.num_visible_chunks - 2), value=fill_value)
        num_chunks = values.shape[3]
        shifted = [padded[:, :, :, n : n + num_chunks] for n in range(self.num_visible_chunks)]
        return torch.cat(shifted, dim=4)

    def to_dense(self, weights: Tensor, round_weights: Tensor) -> Tensor:
        """Combine the weights (B, H, R, C, m, k m) of all rounds into a dense (B, H, P, P)."""
        by_chunk = self._split_chunks(round_weights[..., 0].gather(-1, self.permutation))
        length = self.permutation.shape[-1]
        order = self._split_chunks(self.permutation)[..., None]
        index = (order * length + _transpose(self.with_neighbours(order))).flatten(2)
        flat = weights.new_zeros(*weights.shape[:2], length * length)
        flat = flat.scatter_add(2, index, (weights * by_chunk[..., None]).flatten(2))
        return flat.unflatten(2, (length, length))

    def _split_chunks(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (-1, self.chunk_size))


class PermuteVectors(torch.autograd.Function):
    """A permutation of vectors (B, H, R or 1, P, w) by (B, H, R, P), with a fast gradient.

    The gradient of a gather is a slow scatter-add; here it is a gather by the inverse permutation.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, permutation: Tensor, inverse_permutation: Tensor
    ) -> Tensor:
        ctx.save_for_backward(inverse_permutation)
        ctx.is_shared = values.shape[2] == 1
        return _gather_vectors(values, permutation)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor, None, None]:
        [inverse_permutation] = ctx.saved_tensors
        gradient = _gather_vectors(output_gradients[0], inverse_permutation)
        return (gradient.sum(2, keepdim=True) if ctx.is_shared else gradient), None, None


def _gather_vectors(values: Tensor, permutation: Tensor) -> Tensor:
    batch, heads, rounds, length, width = values.shape
    first = torch.arange(batch * heads * rounds, device=permutation.device) * length
    index = permutation + first.view(batch, heads, rounds, 1)
    flat = values.reshape(-1, width).index_select(0, index.flatten())
    return flat.view(*permutation.shape, width)


def _sort_by_bucket(buckets: Tensor) -> Tensor:
    """Return the order of tokens by ``buckets`` (..., P), stable within a bucket."""
    length = buckets.shape[-1]
    return torch.argsort(buckets * length + torch.arange(length, device=buckets.device), dim=-1)


def _invert_permutation(permutation: Tensor) -> Tensor:
    """Return the inverse of a permutation (..., P)."""
    ranks = torch.arange(permutation.shape[-1], device=permutation.device).expand_as(permutation)
    return torch.empty_like(permutation).scatter_(-1, permutation, ranks)


def _is_too_far(distance: Tensor, chunk_size: int, causal: bool) -> Tensor:
    """Return whether a key is out of reach, ``distance`` ranks before a query in its bucket."""
    return (distance < 0) | (distance > chunk_size) if causal else distance.abs() > chunk_size


def _transpose(values: Tensor) -> Tensor:
    """Transpose (..., n, 1) to (..., 1, n)."""
    return values.transpose(-1, -2)
