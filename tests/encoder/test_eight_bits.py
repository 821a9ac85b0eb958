"""Products in 8 bits: what they are, and that every encoder stays what it was."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from bertwright.encoder.feed_forward import PlainFeedForward
from bertwright.encoder.kernels.eight_bits import (
    EightBitFeedForward,
    EightBitLinear,
    in_eight_bits,
    near_gelu,
    quantised,
    saturates,
)
from bertwright.machine.speed import multiplies_bfloat16
from bertwright.model import Model
from bertwright.notices import say_once
from recipes_at_toy_size import LENGTH, SYSTEMS, VOCABULARY, toy

USUAL = torch.bfloat16 if multiplies_bfloat16() else torch.float32
"""What stays between products on this machine."""


def places(number: int, width: int) -> torch.Tensor:
    return torch.randn(number, width, generator=torch.Generator().manual_seed(1)).bfloat16()


def linear(inner: int, width: int, bias: bool = True) -> nn.Linear:
    torch.manual_seed(2)
    return nn.Linear(inner, width, bias).bfloat16()


def test_the_near_gelu_is_near_everywhere():
    x = torch.linspace(-12, 12, 100_001, dtype=torch.float64)
    assert (near_gelu(x) - nn.functional.gelu(x)).abs().max() < 1.9e-4


def test_no_value_is_further_than_half_a_step_from_its_own():
    x = places(7, 24)
    x[3] = 0
    steps, scales = quantised(x)
    assert steps.dtype == torch.uint8
    back = (steps.double() - 128) * scales
    assert ((back - x.double()).abs() <= scales.double() * 0.5 * (1 + 1e-5)).all()
    assert (back[3] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_whole_numbers(bias, dtype):
    plain, x = linear(24, 40, bias).to(dtype), places(7, 24).to(dtype)
    x[0], plain.weight.data[0] = 1, -1
    steps, scales = quantised(x)
    weight = plain.weight.float()
    outputs = weight.abs().amax(1) / (64 if saturates() else 127)
    whole = (weight / outputs[:, None]).round().long()
    sums = (steps.long() - 128) @ whole.T
    exact = sums.double() * outputs.double() * scales.double()
    if bias:
        exact += plain.bias.double()
    found = EightBitLinear(plain)(x)
    assert found.dtype == dtype
    rounded = 2**-8 if dtype == torch.bfloat16 else 2**-20
    torch.testing.assert_close(found.double(), exact, rtol=2 * rounded, atol=rounded)


LARGEST_PRODUCTS = """
import torch
from bertwright.encoder.kernels.eight_bits import EightBitLinear, saturates
linear = torch.nn.Linear(64, 32, bias=False)
torch.nn.init.ones_(linear.weight)
fast = EightBitLinear(linear)
steps = torch.full((4, 64), 255, dtype=torch.uint8)
torch.testing.assert_close(fast._fast_sums(steps), torch.full((4, 32), 127.0 * 64))
print(saturates())
"""


@pytest.mark.parametrize(("highest", "saturated"), [("AVX2", True), (None, None)])
def test_the_largest_products_are_right_with_every_instruction_set(highest, saturated):
    limit = {} if highest is None else {"ONEDNN_MAX_CPU_ISA": highest}
    command = [sys.executable, "-c", LARGEST_PRODUCTS]
    ended = subprocess.run(
        command, env=os.environ | limit, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == str(saturates() if saturated is None else saturated)


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh", "relu", "silu"])
def test_a_feed_forward_is_what_its_parts_are(activation):
    torch.manual_seed(3)
    plain = PlainFeedForward(24, 96, activation, True, nn.Identity()).to(USUAL)
    x = places(30, 24).view(5, 6, 24).to(USUAL)
    found = EightBitFeedForward(plain)(x)
    assert found.shape == x.shape
    alike = torch.cosine_similarity(found.double().flatten(), plain(x).double().flatten(), 0)
    assert alike > 0.999


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_encoder_says_nearly_the_same(system):
    model = Model.build(toy(system), VOCABULARY).eval()
    pieces = torch.randint(5, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(4))
    small = in_eight_bits(copy.deepcopy(model.encoder).to(USUAL))
    with torch.inference_mode():
        exact, found = model.encoder(pieces), small(pieces)
    alike = torch.cosine_similarity(exact.double().flatten(), found.double().flatten(), 0)
    assert alike > 0.99


def test_products_that_are_wrong_are_not_used(monkeypatch, capsys):
    say_once.cache_clear()
    plain, x = linear(24, 40), places(7, 24)
    right = EightBitLinear(plain)(x)
    fast = EightBitLinear._fast_sums
    monkeypatch.setattr(EightBitLinear, "_fast_sums", lambda self, steps: 2 * fast(self, steps))
    layer = EightBitLinear(plain)
    for _ in range(2):
        assert torch.allclose(layer(x), right, rtol=0.02, atol=0.02)
    (line,) = capsys.readouterr().err.splitlines()
    assert "8-bit products are off by" in line
