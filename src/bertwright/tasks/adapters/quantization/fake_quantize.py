"""Fake quantization: values on a grid, with gradients as if they were not rounded.

This is the straight-through estimator (Bengio et al. 2013).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.models.quantized_weights import (
    QuantizationGrid,
    QuantizationScheme,
    QuantizationSteps,
    quantization_steps,
)


def fake_quantize(values: Tensor, steps: QuantizationSteps, clips_gradients: bool = True) -> Tensor:
    """Round values to the grid, in their dtype.

    With ``clips_gradients``, values beyond the range have no gradient.
    """
    exact = values.detach().float()
    levels = steps.quantize(exact)
    rounded = (levels * steps.scale).to(values.dtype)
    if not (torch.is_grad_enabled() and values.requires_grad):
        return rounded
    # Zero, with the gradient of the values.
    gradient = values - values.detach()
    if clips_gradients:
        gradient = torch.where(torch.round(exact / steps.scale) == levels, gradient, 0.0)
    return rounded + gradient


def fake_quantize_weight(
    weight: Tensor, grid: QuantizationGrid, clips_gradients: bool = True
) -> Tensor:
    """Round a weight (R, C) to its grid, in its dtype."""
    groups = grid.to_groups(weight)
    steps = grid.steps(groups.detach().float())
    return grid.from_groups(fake_quantize(groups, steps, clips_gradients), weight.shape)


class FakeQuantize(nn.Module):
    """A module that rounds values (..., D) while ``is_enabled``, with a range per part of D.

    ``observer_hook`` is called on the values before rounding.
    """

    is_enabled: Tensor

    def __init__(
        self, num_parts: int, bits: int, scheme: QuantizationScheme, clips_gradients: bool
    ) -> None:
        super().__init__()
        self.num_parts, self.bits, self.clips_gradients = num_parts, bits, clips_gradients
        self.scheme: QuantizationScheme = scheme
        self.observer_hook: Callable[[Tensor], None] | None = None
        self.register_buffer("is_enabled", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        grouped = x.unflatten(-1, (self.num_parts, -1))
        if self.observer_hook is not None:
            self.observer_hook(grouped.detach())
        low, high = self.value_range(grouped.detach())
        steps = quantization_steps(low[..., None], high[..., None], self.bits, self.scheme)
        # A copy: a layer that runs again before the backward pass may be enabled in between.
        is_enabled = self.is_enabled.clone()
        rounded = fake_quantize(grouped, steps, self.clips_gradients)
        return torch.where(is_enabled, rounded, grouped).flatten(-2)

    def value_range(self, grouped: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ranges (..., parts) of values (..., parts, w)."""
        raise TypeError(f"{type(self).__name__} does not implement value_range")


class StaticFakeQuantize(FakeQuantize):
    """A fake quantizer with fixed ranges ``low`` and ``high`` (parts,)."""

    low: Tensor
    high: Tensor

    def __init__(
        self, num_parts: int, bits: int, scheme: QuantizationScheme, clips_gradients: bool
    ) -> None:
        super().__init__(num_parts, bits, scheme, clips_gradients)
        self.register_buffer("low", torch.zeros(num_parts))
        self.register_buffer("high", torch.zeros(num_parts))

    def value_range(self, grouped: Tensor) -> tuple[Tensor, Tensor]:
        return self.low, self.high


class PerTokenFakeQuantize(FakeQuantize):
    """A fake quantizer with a separate range for each position."""

    def value_range(self, grouped: Tensor) -> tuple[Tensor, Tensor]:
        return grouped.amin(-1), grouped.amax(-1)


class FakeQuantizedLinear(nn.Linear):
    """A linear layer whose inputs and outputs are fake-quantized."""

    def __init__(
        self, linear: nn.Linear, input_quantizer: nn.Module, output_quantizer: nn.Module
    ) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter("bias", linear.bias)
        self.input_quantizer, self.output_quantizer = input_quantizer, output_quantizer

    def forward(self, input: Tensor) -> Tensor:
        return self.output_quantizer(F.linear(self.input_quantizer(input), self.weight, self.bias))
