"""Dropout as a function of where it happens.

Whether an element is dropped is a hash of (seed, step, site, row of the global batch, place in the
row). So there is no generator state to save, and neither micro-batches nor the number of processes
change what is dropped. Written as integer arithmetic, it fuses with the pointwise work beside it.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertwright.randomness import key

_STEPS = 1 << 16


@dataclass(frozen=True)
class Noise:
    """Where in a training run a forward pass stands.

    ``seed`` is a 0-d int32 tensor that differs from step to step and from block to block;
    ``first_row`` a 0-d int32 tensor, the index of the first row in the global batch. ``strength``
    (1,) float32 is what every rate of dropout is multiplied with, None for 1; as a tensor it may
    change from step to step without anything being compiled anew. ``where`` (M,) int32 are the
    places of the global batch of which alone something is dropped, None where it is of whole rows.
    """

    seed: Tensor
    first_row: Tensor
    strength: Tensor | None = None
    where: Tensor | None = None

    @staticmethod
    def of(
        seed: int,
        step: int,
        first_row: int = 0,
        device: torch.device | None = None,
        strength: float = 1.0,
    ) -> "Noise":
        """The noise of one training step."""
        word = key(seed, "dropout", step) & 0x7FFFFFFF
        return Noise(
            torch.tensor(word, dtype=torch.int32, device=device),
            torch.tensor(first_row, dtype=torch.int32, device=device),
            None if strength == 1.0 else torch.tensor([strength], device=device),
        )

    def within(self, block: int) -> "Noise":
        """The noise of one block."""
        return replace(self, seed=self.seed + (block + 1) * 99991)

    def at(self, where: Tensor, length: int) -> "Noise":
        """The noise of some flat places (M,) of rows of this length: what is dropped there is the
        same as in whole rows."""
        return replace(self, where=(where + self.first_row * length).to(torch.int32))


def dropout(
    x: Tensor, rate: float, noise: Noise | None, site: int, place: Tensor | None = None
) -> Tensor:
    """Drop elements of x (B, ...), or (M, D) where the noise is of M places, with probability
    ``rate`` and scale the rest up.

    The rate is rounded to 1/65536; ``site`` tells apart the places of one block. ``place`` (int32,
    like x) numbers the elements in the global batch, where x is a part of what is dropped from.
    """
    if noise is None or rate == 0.0:
        return x
    threshold = _threshold(rate, noise.strength)
    h = _hash(x, noise, site) if place is None else _mixed(place, noise.seed, site)
    kept = h.bitwise_and_(_STEPS - 1) >= threshold
    # A product, not a choice: its gradient takes a third of the time.
    return (x * (_STEPS / (_STEPS - threshold)) * kept.to(x.dtype)).to(x.dtype)


def locked_dropout(x: Tensor, rate: float, noise: Noise | None, site: int) -> Tensor:
    """Dropout of x (B, L, D) that is the same at all places of a row (Gal and Ghahramani 2016)."""
    if noise is None or rate == 0.0:
        return x
    return x * dropout(x.new_ones(len(x), 1, x.shape[-1]), rate, noise, site)


def row_dropout(x: Tensor, row: Tensor, rate: float, noise: Noise | None, site: int) -> Tensor:
    """Of vectors x (..., D) that were read from these rows (...) of a table: rows are dropped as a
    whole, wherever in the step they are read (Gal and Ghahramani 2016)."""
    if noise is None or rate == 0.0:
        return x
    return x * _kept(row, rate, noise, site)[..., None].to(x.dtype)


def weight_dropout(weight: Tensor, rate: float, noise: Noise | None, site: int) -> Tensor:
    """Weights of which some are 0 for a whole step (Wan et al. 2013)."""
    if noise is None or rate == 0.0:
        return weight
    place = torch.arange(weight.numel(), dtype=torch.int32, device=weight.device)
    return weight * _kept(place.view(weight.shape), rate, noise, site).to(weight.dtype)


def _kept(place: Tensor, rate: float, noise: Noise, site: int) -> Tensor:
    """What to multiply with at numbered places, the same in every row of the batch."""
    threshold = _threshold(rate, noise.strength)
    h = _mixed(place.to(torch.int32), noise.seed, site).bitwise_and(_STEPS - 1)
    return (h >= threshold) * (_STEPS / (_STEPS - threshold))


def _threshold(rate: float, strength: Tensor | None) -> int | Tensor:
    """How many of the steps of a hash are dropped."""
    if strength is None:
        return round(rate * _STEPS)
    return (strength * (rate * _STEPS)).round().to(torch.int32)


def uniform(noise: Noise, place: Tensor, site: int) -> Tensor:
    """Numbers in [0, 1) for places (...) of the global batch, float32."""
    return _fraction(_mixed(place.to(torch.int32), noise.seed, site))


def uniform_at(seed: int, place: Tensor) -> Tensor:
    """Numbers in [0, 1) for places (...) that have nothing to do with a step, float32."""
    return _fraction(_mixed(place.to(torch.int32), seed & 0x3FFFFFFF, 0))


def gaussian(
    shape: tuple[int, ...], noise: Noise | None, seed: int, site: int, like: Tensor
) -> Tensor:
    """Normal numbers of a step and a block, or of the seed alone where there is no noise; of the
    dtype and on the device of another tensor (Box and Muller 1958)."""
    number = math.prod(shape)
    place = torch.arange(2 * number, dtype=torch.int32, device=like.device)
    drawn = uniform_at(key(seed, site), place) if noise is None else uniform(noise, place, site)
    wide = torch.promote_types(like.dtype, torch.float32)  # in which no fraction rounds to 1
    length, angle = drawn.to(wide).view(2, *shape).unbind(0)
    normal = torch.sqrt(-2 * torch.log1p(-length)) * torch.cos(2 * math.pi * angle)
    return normal.to(like.dtype)


def _fraction(h: Tensor) -> Tensor:
    return (h & 0xFFFFFF).float() / (1 << 24)


def _hash(x: Tensor, noise: Noise, site: int) -> Tensor:
    if noise.where is not None:
        within = torch.arange(x.shape[-1], dtype=torch.int32, device=x.device)
        return _mixed(noise.where[:, None] * x.shape[-1] + within, noise.seed, site)
    place = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    return _mixed(place.add_(noise.first_row * (x.numel() // x.shape[0])), noise.seed, site)


def _mixed(place: Tensor, seed: Tensor | int, site: int) -> Tensor:
    """A new tensor, changed in place: without a compiler that is twice as fast."""
    h = (place * -1640531527).add_(seed + site * 1234567)
    h.bitwise_xor_(h >> 15).mul_(0x2C1B3C6D)
    h.bitwise_xor_(h >> 12).mul_(0x297A2D39)
    return h.bitwise_xor_(h >> 15)
