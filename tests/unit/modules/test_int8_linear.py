"""8-bit products: their definition, and that every encoder stays nearly the same."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from bertwright.core.messages import print_once
from bertwright.models import Model
from bertwright.modules.feed_forward import PlainFeedForward
from bertwright.modules.inference.int8_linear import (
    Int8FeedForward,
    Int8Linear,
    approximate_gelu,
    int8_sums_saturate,
    quantise,
    quantise_linear_layers,
)
from bertwright.runtime.matmul_throughput import supports_bfloat16
from toy_recipes import LENGTH, VOCABULARY, every_encoder, toy

DTYPE = torch.bfloat16 if supports_bfloat16() else torch.float32
"""The dtype of everything but the products on this machine."""


def random_inputs(number: int, width: int) -> torch.Tensor:
    return torch.randn(number, width, generator=torch.Generator().manual_seed(1)).bfloat16()


def linear(inner: int, width: int, bias: bool = True) -> nn.Linear:
    torch.manual_seed(2)
    return nn.Linear(inner, width, bias).bfloat16()


def test_approximate_gelu():
    x = torch.linspace(-12, 12, 100_001, dtype=torch.float64)
    assert (approximate_gelu(x) - nn.functional.gelu(x)).abs().max() < 1.9e-4


def test_quantisation_error_is_at_most_half_a_step():
    x = random_inputs(7, 24)
    x[3] = 0
    steps, scales = quantise(x)
    assert steps.dtype == torch.uint8
    dequantised = (steps.double() - 128) * scales
    assert ((dequantised - x.double()).abs() <= scales.double() * 0.5 * (1 + 1e-5)).all()
    assert (dequantised[3] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_products_equal_integer_products(bias, dtype):
    plain, x = linear(24, 40, bias).to(dtype), random_inputs(7, 24).to(dtype)
    x[0], plain.weight.data[0] = 1, -1
    steps, scales = quantise(x)
    weight = plain.weight.float()
    output_scales = weight.abs().amax(1) / (64 if int8_sums_saturate() else 127)
    int_weight = (weight / output_scales[:, None]).round().long()
    sums = (steps.long() - 128) @ int_weight.T
    exact = sums.double() * output_scales.double() * scales.double()
    if bias:
        exact += plain.bias.double()
    actual = Int8Linear(plain)(x)
    assert actual.dtype == dtype
    precision = 2**-8 if dtype == torch.bfloat16 else 2**-20
    torch.testing.assert_close(actual.double(), exact, rtol=2 * precision, atol=precision)


LARGEST_PRODUCTS = """
import torch
from bertwright.modules.inference.int8_linear import Int8Linear, int8_sums_saturate
linear = torch.nn.Linear(64, 32, bias=False)
torch.nn.init.ones_(linear.weight)
fast = Int8Linear(linear)
steps = torch.full((4, 64), 255, dtype=torch.uint8)
torch.testing.assert_close(fast._fast_matmul(steps), torch.full((4, 32), 127.0 * 64))
print(int8_sums_saturate())
"""


@pytest.mark.parametrize(("instruction_set", "saturates"), [("AVX2", True), (None, None)])
def test_the_largest_products_with_every_instruction_set(instruction_set, saturates):
    environment = {} if instruction_set is None else {"ONEDNN_MAX_CPU_ISA": instruction_set}
    command = [sys.executable, "-c", LARGEST_PRODUCTS]
    result = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(int8_sums_saturate() if saturates is None else saturates)


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh", "relu", "silu"])
def test_feed_forward(activation):
    torch.manual_seed(3)
    plain = PlainFeedForward(24, 96, activation, True, nn.Identity()).to(DTYPE)
    x = random_inputs(30, 24).view(5, 6, 24).to(DTYPE)
    actual = Int8FeedForward(plain)(x)
    assert actual.shape == x.shape
    similarity = torch.cosine_similarity(actual.double().flatten(), plain(x).double().flatten(), 0)
    assert similarity > 0.999


@every_encoder
def test_every_encoder_gives_nearly_the_same_states(system):
    model = Model.build(toy(system), VOCABULARY).eval()
    tokens = torch.randint(5, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(4))
    quantised = quantise_linear_layers(copy.deepcopy(model.encoder).to(DTYPE))
    with torch.inference_mode():
        expected, actual = model.encoder(tokens), quantised(tokens)
    similarity = torch.cosine_similarity(expected.double().flatten(), actual.double().flatten(), 0)
    assert similarity > 0.99


def test_wrong_products_are_not_used(monkeypatch, capsys):
    print_once.cache_clear()
    plain, x = linear(24, 40), random_inputs(7, 24)
    expected = Int8Linear(plain)(x)
    fast = Int8Linear._fast_matmul
    monkeypatch.setattr(Int8Linear, "_fast_matmul", lambda self, steps: 2 * fast(self, steps))
    layer = Int8Linear(plain)
    for _ in range(2):
        assert torch.allclose(layer(x), expected, rtol=0.02, atol=0.02)
    (line,) = capsys.readouterr().err.splitlines()
    assert "8-bit products are off by" in line
