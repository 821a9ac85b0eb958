"""Counter-based dropout: masks without generator state.

Whether an element is dropped depends on a hash of (seed, step, stream, sequence in the global
batch, position). So there is no generator state to save, and neither micro-batches nor the number
of processes change the result. The integer arithmetic can be fused with neighbouring operations.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertwright.core.rng import stream_key

_NUM_LEVELS = 1 << 16


@dataclass(frozen=True)
class DropoutRng:
    """A random number generator for one forward pass.

    ``seed`` is a 0-d int32 tensor that differs between steps and blocks. ``first_sequence`` is a
    0-d int32 tensor, the index of the first sequence in the global batch. ``dropout_scale`` (1,)
    float32 multiplies every dropout rate; it is a tensor so that it can change between steps
    without recompiling, or None for 1. ``position_indices`` (M,) int32 are the flat positions in
    the global batch if only these are computed, else None.
    """

    seed: Tensor
    first_sequence: Tensor
    dropout_scale: Tensor | None = None
    position_indices: Tensor | None = None

    @staticmethod
    def for_step(
        seed: int,
        step: int,
        first_sequence: int = 0,
        device: torch.device | None = None,
        dropout_scale: float = 1.0,
    ) -> "DropoutRng":
        """Return the generator of one training step."""
        step_seed = stream_key(seed, "dropout", step) & 0x7FFFFFFF
        return DropoutRng(
            torch.tensor(step_seed, dtype=torch.int32, device=device),
            torch.tensor(first_sequence, dtype=torch.int32, device=device),
            None if dropout_scale == 1.0 else torch.tensor([dropout_scale], device=device),
        )

    def for_block(self, block: int) -> "DropoutRng":
        """Return the generator of one block."""
        return replace(self, seed=self.seed + (block + 1) * 99991)

    def at_positions(self, positions: Tensor, length: int) -> "DropoutRng":
        """Return the generator for flat positions (M,) in sequences of this length."""
        return replace(
            self, position_indices=(positions + self.first_sequence * length).to(torch.int32)
        )


def dropout(
    x: Tensor,
    dropout_rate: float,
    dropout_rng: DropoutRng | None,
    stream: int,
    element_indices: Tensor | None = None,
) -> Tensor:
    """Drop elements of x (B, ...), or (M, D) at M positions, and scale up the rest.

    The rate is rounded to 1/65536. Dropouts in the same block have different values of ``stream``.
    ``element_indices`` (int32, the shape of x) are the indices of the elements in the global batch
    if x is only a part of it.
    """
    if dropout_rng is None or dropout_rate == 0.0:
        return x
    threshold = _threshold(dropout_rate, dropout_rng.dropout_scale)
    hashes = (
        _hash_elements(x, dropout_rng, stream)
        if element_indices is None
        else _mix(element_indices, dropout_rng.seed, stream)
    )
    keep = hashes.bitwise_and_(_NUM_LEVELS - 1) >= threshold
    # A product, because its gradient takes a third of the time of torch.where's.
    return (x * (_NUM_LEVELS / (_NUM_LEVELS - threshold)) * keep.to(x.dtype)).to(x.dtype)


def locked_dropout(
    x: Tensor, dropout_rate: float, dropout_rng: DropoutRng | None, stream: int
) -> Tensor:
    """Drop the same channels of x (B, L, D) at all positions (Gal and Ghahramani 2016)."""
    if dropout_rng is None or dropout_rate == 0.0:
        return x
    return x * dropout(x.new_ones(len(x), 1, x.shape[-1]), dropout_rate, dropout_rng, stream)


def embedding_dropout(
    x: Tensor, token_ids: Tensor, dropout_rate: float, dropout_rng: DropoutRng | None, stream: int
) -> Tensor:
    """Drop whole token embeddings x (..., D) by token ID (Gal and Ghahramani 2016).

    ``token_ids`` are (...). A dropped token is dropped wherever it occurs in the step.
    """
    if dropout_rng is None or dropout_rate == 0.0:
        return x
    scale = _dropout_scale_at(token_ids, dropout_rate, dropout_rng, stream)
    return x * scale[..., None].to(x.dtype)


def word_dropout(
    x: Tensor, dropout_rate: float, dropout_rng: DropoutRng | None, stream: int
) -> Tensor:
    """Drop whole vectors of x (B, L, D), each position on its own (Iyyer et al. 2015).

    The other vectors are not scaled up, as in a text without the dropped words.
    """
    if dropout_rng is None or dropout_rate == 0.0:
        return x
    kept = dropout(x.new_ones(*x.shape[:2], 1), dropout_rate, dropout_rng, stream) > 0
    return x * kept.to(x.dtype)


def weight_dropout(
    weight: Tensor, dropout_rate: float, dropout_rng: DropoutRng | None, stream: int
) -> Tensor:
    """Drop elements of a weight for a whole step (Wan et al. 2013)."""
    if dropout_rng is None or dropout_rate == 0.0:
        return weight
    indices = torch.arange(weight.numel(), dtype=torch.int32, device=weight.device)
    scale = _dropout_scale_at(indices, dropout_rate, dropout_rng, stream)
    return weight * scale.view(weight.shape).to(weight.dtype)


def _dropout_scale_at(
    indices: Tensor, dropout_rate: float, dropout_rng: DropoutRng, stream: int
) -> Tensor:
    """Return the factor of each index, 0 or 1 / (1 - rate), which the whole batch shares."""
    threshold = _threshold(dropout_rate, dropout_rng.dropout_scale)
    hashes = _mix(indices.to(torch.int32), dropout_rng.seed, stream).bitwise_and(_NUM_LEVELS - 1)
    return (hashes >= threshold) * (_NUM_LEVELS / (_NUM_LEVELS - threshold))


def _threshold(dropout_rate: float, dropout_scale: Tensor | None) -> int | Tensor:
    """Return the number of dropped hash values, of ``_NUM_LEVELS``."""
    if dropout_scale is None:
        return round(dropout_rate * _NUM_LEVELS)
    return (dropout_scale * (dropout_rate * _NUM_LEVELS)).round().to(torch.int32)


def uniform_for_step(dropout_rng: DropoutRng, indices: Tensor, stream: int) -> Tensor:
    """Return uniform numbers in [0, 1), float32, for indices (...) into the global batch."""
    return _to_unit_interval(_mix(indices.to(torch.int32), dropout_rng.seed, stream))


def uniform_for_seed(seed: int, indices: Tensor) -> Tensor:
    """Return uniform numbers in [0, 1), float32, for indices (...), the same in every step."""
    return _to_unit_interval(_mix(indices.to(torch.int32), seed & 0x3FFFFFFF, 0))


def gaussian(
    shape: tuple[int, ...], dropout_rng: DropoutRng | None, seed: int, stream: int, like: Tensor
) -> Tensor:
    """Return normal random numbers with the dtype and device of ``like``.

    They depend on the step and block of ``dropout_rng``; if it is None, on ``seed`` alone. Source:
    Box and Muller 1958.
    """
    number = math.prod(shape)
    indices = torch.arange(2 * number, dtype=torch.int32, device=like.device)
    uniforms = (
        uniform_for_seed(stream_key(seed, stream), indices)
        if dropout_rng is None
        else uniform_for_step(dropout_rng, indices, stream)
    )
    wide = torch.promote_types(like.dtype, torch.float32)  # so that no fraction rounds to 1
    length, angle = uniforms.to(wide).view(2, *shape).unbind(0)
    normal = torch.sqrt(-2 * torch.log1p(-length)) * torch.cos(2 * math.pi * angle)
    return normal.to(like.dtype)


def _to_unit_interval(hashes: Tensor) -> Tensor:
    return (hashes & 0xFFFFFF).float() / (1 << 24)


def _hash_elements(x: Tensor, dropout_rng: DropoutRng, stream: int) -> Tensor:
    if dropout_rng.position_indices is not None:
        offsets = torch.arange(x.shape[-1], dtype=torch.int32, device=x.device)
        return _mix(
            dropout_rng.position_indices[:, None] * x.shape[-1] + offsets, dropout_rng.seed, stream
        )
    num_rows, row_size = x.shape[0], x.numel() // x.shape[0]
    rows = torch.arange(num_rows, dtype=torch.int32, device=x.device) + dropout_rng.first_sequence
    # The product may overflow, as only the lower 32 bits of an index count.
    indices = rows[:, None] * row_size + torch.arange(row_size, dtype=torch.int32, device=x.device)
    return _mix(indices.view(x.shape), dropout_rng.seed, stream)


def _mix(indices: Tensor, seed: Tensor | int, stream: int) -> Tensor:
    """Return hashes, computed in place in a new tensor: twice as fast without a compiler."""
    h = (indices * -1640531527).add_(seed + stream * 1234567)
    h.bitwise_xor_(h >> 15).mul_(0x2C1B3C6D)
    h.bitwise_xor_(h >> 12).mul_(0x297A2D39)
    return h.bitwise_xor_(h >> 15)
