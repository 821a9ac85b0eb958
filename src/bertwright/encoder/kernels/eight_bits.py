"""Linear layers in 8 bits, for inference on a CPU.

Every place has a scale of its own, found as it is read, and every output has one; products are
summed in whole numbers. The plain definition is ``(q(x) @ q(weight).T) * scales + bias``, where
``q`` is the nearest of 127 steps on either side of 0, as far as the greatest value; of weights, of
64 where sums would saturate. What is not a product stays in the precision of the module.
"""

import platform
from functools import cache

import torch
from torch import Tensor, nn

from bertwright.encoder.feed_forward import ACTIVATIONS, PlainFeedForward
from bertwright.encoder.kernels.fused import fused, tolerance_for
from bertwright.encoder.kernels.packed import ROWS_HINT, replace_linear
from bertwright.encoder.taps import Site
from bertwright.machine.compiled import largest_error
from bertwright.notices import say_once

STEPS = 127
"""On either side of 0, which is written as 128: processors multiply unsigned by signed numbers."""

FEWER_STEPS = 64
"""Of weights, of which two times the highest place (255) are less than 16 bits hold."""

SMALLEST = 1e-12
"""The greatest value of what is all zeros, so that it can be divided by."""

NEAR_GELU = (
    0.39788329401071454,
    -0.0645730318642574,
    0.008772351663741561,
    -0.0008140077714575759,
    4.795471091885593e-05,
    -1.5985609972386408e-06,
    2.2780621075507226e-08,
)
"""Of the polynomial in z squared that, times z, is nearest to the normal distribution less a half
between -4 and 4."""


def eight_bits_are_fast() -> bool:
    """Whether this processor multiplies whole numbers of 8 bits faster than float32: x86 from AVX2
    on."""
    capability = torch.backends.cpu.get_cpu_capability()
    return torch.backends.mkldnn.is_available() and capability.startswith("AVX")


@cache
def saturates() -> bool:
    """Return whether a sum of two products of 8 bits can be more than this processor keeps: x86
    without instructions for this (VNNI), or kept from using them, keeps 16 bits of it."""
    if not eight_bits_are_fast():
        return platform.machine().lower() in ("x86_64", "amd64")
    highest = torch.full((ROWS_HINT, 2), 2 * STEPS + 1, dtype=torch.uint8)
    weight = torch.ops.onednn.qlinear_prepack(
        torch.full((2, 2), STEPS, dtype=torch.int8), [ROWS_HINT, 2]
    )
    sums = _products(highest, weight, torch.ones(2), torch.zeros(2, dtype=torch.int64))
    return bool((sums != 2 * STEPS * STEPS).any())


def _products(
    steps: Tensor,
    weight: Tensor,
    scales: Tensor,
    zeros: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the products of steps (T, D) and packed weights, times the scales of the outputs
    (N,), as (T, N) of a dtype."""
    multiply = torch.ops.onednn.qlinear_pointwise
    x, packed, output = (steps, 1.0, STEPS + 1), (weight, scales, zeros), (1.0, 0, dtype)
    products: Tensor = multiply(*x, *packed, None, *output, "none", [], "")
    return products


def near_gelu(x: Tensor) -> Tensor:
    """GELU, off by at most 1.9e-4: less than a step of 8 bits, and several times as fast."""
    z = x.clamp(-4, 4)
    square, factor = z * z, torch.full_like(x, NEAR_GELU[-1])
    for coefficient in NEAR_GELU[-2::-1]:
        factor = factor * square + coefficient
    return x * (0.5 + z * factor)


NEAR = ACTIVATIONS | {"gelu": near_gelu, "gelu-tanh": near_gelu}

LOWEST = {"gelu": 0.17, "gelu-tanh": 0.171, "silu": 0.279, "relu": 0.0}
"""How far below 0 an activation goes; above it grows with what it is of."""


@fused
def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (T, D) as steps (T, D) uint8, and the scales of its places (T, 1) float32."""
    exact = x.float()
    greatest = exact.abs().amax(-1, keepdim=True).clamp(min=SMALLEST)
    return (exact * (STEPS / greatest) + (STEPS + 1)).round().to(torch.uint8), greatest / STEPS


@fused
def rescaled(sums: Tensor, scales: Tensor, bias: Tensor) -> Tensor:
    """Sums of products (T, N) without the scales of places (T, 1), with them and a bias (N,), in
    the precision of the sums."""
    return (sums.float() * scales + bias).to(sums.dtype)


@fused
def activated(sums: Tensor, scales: Tensor, bias: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """The same through an activation and as steps again, with their scales."""
    exact, near = sums.float() * scales + bias, NEAR[activation]
    greatest = near(exact.amax(-1, keepdim=True)).clamp(min=max(LOWEST[activation], SMALLEST))
    return (near(exact) * (STEPS / greatest) + (STEPS + 1)).round().to(
        torch.uint8
    ), greatest / STEPS


class EightBitLinear(nn.Module):
    """A linear layer whose products are in 8 bits. The float weights stay beside.

    Its first product is compared with the plain one; where the two differ, the plain one is used.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight.detach()
        biased = "bias" in dict(linear.named_parameters(recurse=False))
        self.bias = linear.bias.detach() if biased else None
        width, inner = self.weight.shape
        self.added = torch.zeros(width) if self.bias is None else self.bias.float()
        exact = self.weight.float()
        highest = FEWER_STEPS if saturates() else STEPS
        self._scales = exact.abs().amax(1).clamp(min=SMALLEST) / highest
        self._packed = torch.ops.onednn.qlinear_prepack(self._steps(), [ROWS_HINT, inner])
        self._zero = torch.zeros(width, dtype=torch.int64)
        self._is_right: bool | None = None

    def forward(self, x: Tensor) -> Tensor:
        steps, scales = quantised(x.reshape(-1, x.shape[-1]))
        return rescaled(self.sums(steps), scales, self.added).view(*x.shape[:-1], -1)

    def sums(self, steps: Tensor) -> Tensor:
        """Return the sums of products, (T, D) uint8 to (T, N), times the scales of the outputs."""
        if self._is_right is None and len(steps):
            right = self._plain_sums(steps)
            error = largest_error(self._fast_sums(steps), right)
            self._is_right = error <= tolerance_for(right.dtype)
            if not self._is_right:
                say_once(f"8-bit products are off by {error:.1%} on this processor: not used")
        return self._plain_sums(steps) if self._is_right is False else self._fast_sums(steps)

    def _steps(self) -> Tensor:
        """Return the weights as whole steps, (N, D) int8."""
        return (self.weight.float() / self._scales[:, None]).round().to(torch.int8)

    def _plain_sums(self, steps: Tensor) -> Tensor:
        products = (steps.float() - (STEPS + 1)) @ self._steps().float().T
        return (products * self._scales).to(self.weight.dtype)

    def _fast_sums(self, steps: Tensor) -> Tensor:
        return _products(steps, self._packed, self._scales, self._zero, self.weight.dtype)


class EightBitFeedForward(nn.Module):
    """A plain feed-forward without a norm inside: what is between its products is one loop."""

    def __init__(self, plain: PlainFeedForward) -> None:
        super().__init__()
        self.up, self.down = EightBitLinear(plain.up), EightBitLinear(plain.down)
        self.activation = plain.activation

    def forward(self, x: Tensor, site: Site | None = None) -> Tensor:
        assert site is None, "inner values are looked at in the model as it is"
        steps, scales = quantised(x.reshape(-1, x.shape[-1]))
        steps, scales = activated(self.up.sums(steps), scales, self.up.added, self.activation)
        return rescaled(self.down.sums(steps), scales, self.down.added).view(x.shape)


def in_eight_bits(module: nn.Module) -> nn.Module:
    """Replace every linear layer of a module by one in 8 bits, in place."""
    return replace_linear(
        module,
        EightBitLinear,
        lambda plain: EightBitFeedForward(plain) if isinstance(plain.norm, nn.Identity) else None,
    )
