"""The activations of the feed-forward."""

import math

import pytest
import torch

from bertwright.modules.feed_forward import ACTIVATIONS


def test_exact_and_approximate_gelu() -> None:
    x = torch.linspace(-6, 6, 24_001, dtype=torch.float64)
    exact, approximate = ACTIVATIONS["gelu"](x), ACTIVATIONS["gelu-tanh"](x)
    torch.testing.assert_close(exact, x * (1 + torch.erf(x / math.sqrt(2))) / 2)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    torch.testing.assert_close(approximate, x * (1 + torch.tanh(inner)) / 2)
    assert float((exact - approximate).abs().max()) == pytest.approx(4.73e-4, abs=5e-7)
