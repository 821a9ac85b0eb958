"""Linear layers in 8 bits, for inference on a CPU.

Every token has a scale, computed at run time, and every output channel has one; products are summed
as integers. The result is ``(q(x) @ q(weight).T) * scales + bias``, where ``q`` rounds to one of
127 steps on either side of 0, up to the maximum magnitude (64 steps for weights on CPUs whose sums
would saturate). All other computation stays in the precision of the module.
"""

import platform
from functools import cache

import torch
from torch import Tensor, nn

from bertwright.core.messages import print_once
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.feed_forward import ACTIVATIONS, PlainFeedForward
from bertwright.modules.hooks import HookPoint
from bertwright.modules.inference.packed_linear import NUM_ROWS_HINT, replace_linear_layers
from bertwright.runtime.checked_compilation import compile_checked, tolerance_for
from bertwright.runtime.compiled_functions import max_relative_error

MAX_INT8 = 127
"""Steps on either side of 0. Inputs store 0 as 128, because processors multiply uint8 by int8."""

MAX_SATURATING_WEIGHT = 64
"""Steps of weights on CPUs whose sums saturate: 2 x 255 x 64 fits in 16 bits."""

MIN_SCALE = 1e-12
"""Lower bound of the maximum magnitude, which avoids a division by 0."""

GELU_COEFFICIENTS = (
    0.39788329401071454,
    -0.0645730318642574,
    0.008772351663741561,
    -0.0008140077714575759,
    4.795471091885593e-05,
    -1.5985609972386408e-06,
    2.2780621075507226e-08,
)
"""Coefficients of a polynomial p in z squared.

z p(z^2) is the best approximation of the normal distribution function minus 1/2 on [-4, 4].
"""


def int8_is_fast() -> bool:
    """Return whether 8-bit products are faster than float32 on this CPU: x86 from AVX2 on."""
    capability = torch.backends.cpu.get_cpu_capability()
    return torch.backends.mkldnn.is_available() and capability.startswith("AVX")


@cache
def int8_sums_saturate() -> bool:
    """Return whether 8-bit products are summed in 16 bits on this CPU (x86 without VNNI)."""
    if not int8_is_fast():
        return platform.machine().lower() in ("x86_64", "amd64")
    highest = torch.full((NUM_ROWS_HINT, 2), 2 * MAX_INT8 + 1, dtype=torch.uint8)
    weight = torch.ops.onednn.qlinear_prepack(
        torch.full((2, 2), MAX_INT8, dtype=torch.int8), [NUM_ROWS_HINT, 2]
    )
    sums = _int8_matmul(highest, weight, torch.ones(2), torch.zeros(2, dtype=torch.int64))
    return bool((sums != 2 * MAX_INT8 * MAX_INT8).any())


def _int8_matmul(
    int8_input: Tensor,
    weight: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return steps (T, D) times packed weights times output scales (N,), as (T, N) of ``dtype``."""
    multiply = torch.ops.onednn.qlinear_pointwise
    x, packed, output = (
        (int8_input, 1.0, MAX_INT8 + 1),
        (weight, scales, zero_points),
        (1.0, 0, dtype),
    )
    products: Tensor = multiply(*x, *packed, None, *output, "none", [], "")
    return products


def approximate_gelu(x: Tensor) -> Tensor:
    """Return GELU within 1.9e-4, less than an 8-bit step, but several times as fast."""
    z = x.clamp(-4, 4)
    square, factor = z * z, torch.full_like(x, GELU_COEFFICIENTS[-1])
    for coefficient in GELU_COEFFICIENTS[-2::-1]:
        factor = factor * square + coefficient
    return x * (0.5 + z * factor)


APPROXIMATE_ACTIVATIONS = ACTIVATIONS | {"gelu": approximate_gelu, "gelu-tanh": approximate_gelu}

ACTIVATION_MINIMA = {"gelu": 0.17, "gelu-tanh": 0.171, "silu": 0.279, "relu": 0.0}
"""Negated minimum of each activation, which increases above 0."""


@compile_checked
def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise x (T, D); return steps (T, D) uint8 and the scales of the tokens (T, 1) float32."""
    exact = x.float()
    greatest = exact.abs().amax(-1, keepdim=True).clamp(min=MIN_SCALE)
    return (exact * (MAX_INT8 / greatest) + (MAX_INT8 + 1)).round().to(
        torch.uint8
    ), greatest / MAX_INT8


@compile_checked
def dequantise(products: Tensor, scales: Tensor, bias: Tensor) -> Tensor:
    """Return products (T, N) times token scales (T, 1) plus a bias (N,), in the same dtype."""
    return (products.float() * scales + bias).to(products.dtype)


@compile_checked
def activate_and_quantise(
    products: Tensor, scales: Tensor, bias: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Dequantise products, apply the activation, and quantise again; return steps and scales."""
    exact, function = products.float() * scales + bias, APPROXIMATE_ACTIVATIONS[activation]
    greatest = function(exact.amax(-1, keepdim=True)).clamp(
        min=max(ACTIVATION_MINIMA[activation], MIN_SCALE)
    )
    return (function(exact) * (MAX_INT8 / greatest) + (MAX_INT8 + 1)).round().to(
        torch.uint8
    ), greatest / MAX_INT8


class Int8Linear(nn.Module):
    """A linear layer with 8-bit products that keeps the float weights.

    The first product is checked against a plain implementation, which is used if the two differ.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight.detach()
        has_bias = "bias" in dict(linear.named_parameters(recurse=False))
        self.bias = linear.bias.detach() if has_bias else None
        width, inner = self.weight.shape
        self.float_bias = torch.zeros(width) if self.bias is None else self.bias.float()
        exact = self.weight.float()
        max_step = MAX_SATURATING_WEIGHT if int8_sums_saturate() else MAX_INT8
        self._scales = exact.abs().amax(1).clamp(min=MIN_SCALE) / max_step
        self._packed_weight = torch.ops.onednn.qlinear_prepack(
            self._int8_weight(), [NUM_ROWS_HINT, inner]
        )
        self._zero = torch.zeros(width, dtype=torch.int64)
        self._is_correct: bool | None = None

    def forward(self, x: Tensor) -> Tensor:
        steps, scales = quantise(x.reshape(-1, x.shape[-1]))
        return dequantise(self.matmul(steps), scales, self.float_bias).view(*x.shape[:-1], -1)

    def matmul(self, int8_input: Tensor) -> Tensor:
        """Return steps (T, D) uint8 times the weights times the output scales, (T, N)."""
        if self._is_correct is None and len(int8_input):
            expected = self._plain_matmul(int8_input)
            error = max_relative_error(self._fast_matmul(int8_input), expected)
            self._is_correct = error <= tolerance_for(expected.dtype)
            if not self._is_correct:
                print_once(f"8-bit products are off by {error:.1%} on this processor: not used")
        return (
            self._plain_matmul(int8_input)
            if self._is_correct is False
            else self._fast_matmul(int8_input)
        )

    def _int8_weight(self) -> Tensor:
        """Return the weights as steps, (N, D) int8."""
        return (self.weight.float() / self._scales[:, None]).round().to(torch.int8)

    def _plain_matmul(self, int8_input: Tensor) -> Tensor:
        products = (int8_input.float() - (MAX_INT8 + 1)) @ self._int8_weight().float().T
        return (products * self._scales).to(self.weight.dtype)

    def _fast_matmul(self, int8_input: Tensor) -> Tensor:
        return _int8_matmul(
            int8_input, self._packed_weight, self._scales, self._zero, self.weight.dtype
        )


class Int8FeedForward(nn.Module):
    """A plain feed-forward in 8 bits without inner norm, with one loop between its products."""

    def __init__(self, feed_forward: PlainFeedForward) -> None:
        super().__init__()
        self.up, self.down = Int8Linear(feed_forward.up), Int8Linear(feed_forward.down)
        self.activation = feed_forward.activation

    def forward(
        self,
        x: Tensor,
        hooks: HookPoint | None = None,
        dropout_rng: DropoutRng | None = None,
        stream: int = 0,
    ) -> Tensor:
        assert hooks is None, "hooks need the unquantised model"
        steps, scales = quantise(x.reshape(-1, x.shape[-1]))
        steps, scales = activate_and_quantise(
            self.up.matmul(steps), scales, self.up.float_bias, self.activation
        )
        return dequantise(self.down.matmul(steps), scales, self.down.float_bias).view(x.shape)


def quantise_linear_layers(module: nn.Module) -> nn.Module:
    """Replace every linear layer of a module by an 8-bit one, in place."""
    return replace_linear_layers(
        module,
        Int8Linear,
        lambda plain: Int8FeedForward(plain) if isinstance(plain.norm, nn.Identity) else None,
    )
