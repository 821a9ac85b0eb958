"""Dropout is a function of where it happens."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from bertwright.encoder.kernels.noise import (
    Noise,
    dropout,
    locked_dropout,
    row_dropout,
    weight_dropout,
)
from recipes_at_toy_size import toy


def test_without_noise_or_rate_nothing_changes():
    x = torch.randn(2, 3)
    assert dropout(x, 0.5, None, 0) is x
    assert dropout(x, 0.0, Noise.of(0, 0), 0) is x


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_rate_and_mean_are_right(rate):
    x = torch.ones(64, 4096)
    y = dropout(x, rate, Noise.of(3, 5), 1)
    assert float((y == 0).float().mean()) == pytest.approx(rate, abs=0.003)
    assert float(y.mean()) == pytest.approx(1.0, abs=0.01)


def test_rows_are_dropped_the_same_in_any_micro_batch():
    x = torch.ones(8, 5, 7)
    whole = dropout(x, 0.3, Noise.of(1, 2), 4)
    parts = [dropout(x[i : i + 2], 0.3, Noise.of(1, 2, first_row=i), 4) for i in range(0, 8, 2)]
    assert torch.equal(whole, torch.cat(parts))


def test_steps_blocks_and_sites_differ_and_are_independent():
    x = torch.ones(16, 1024)
    draws = [
        dropout(x, 0.5, noise, site) > 0
        for noise, site in [
            (Noise.of(0, 1), 0),
            (Noise.of(0, 2), 0),
            (Noise.of(1, 1), 0),
            (Noise.of(0, 1).within(0), 0),
            (Noise.of(0, 1), 1),
        ]
    ]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            assert float((one == other).float().mean()) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_strength_multiplies_the_rate(dtype):
    x = torch.randn(32, 256).to(dtype)
    weaker = dropout(x, 0.4, Noise.of(3, 5, strength=0.25), 1)
    assert weaker.dtype == dtype
    assert torch.equal(weaker, dropout(x, 0.1, Noise.of(3, 5), 1))
    assert torch.equal(dropout(x, 0.4, Noise.of(3, 5, strength=0.0), 1), x)
    block = Noise.of(3, 5, strength=0.25).within(2)
    assert torch.equal(dropout(x, 0.4, block, 1), dropout(x, 0.1, Noise.of(3, 5).within(2), 1))


def of_rows(x, rate, noise, site):
    return row_dropout(x, torch.arange(x.shape[1]).expand(x.shape[:2]), rate, noise, site)


@pytest.mark.parametrize("kind", [locked_dropout, of_rows, weight_dropout])
def test_a_strength_multiplies_the_rate_of_every_kind_of_dropout(kind):
    x = torch.randn(8, 64, 16)
    weaker = kind(x, 0.4, Noise.of(3, 5, strength=0.25), 1)
    assert torch.equal(weaker, kind(x, 0.1, Noise.of(3, 5), 1))
    assert torch.equal(kind(x, 0.4, Noise.of(3, 5, strength=0.0), 1), x)
    assert float((weaker == 0).float().mean()) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize(
    "change",
    [
        "dropout={hidden: 0.1}",
        "dropout.output=0.1",
        "embeddings.row_dropout=0.1",
        "mixer.dropout=0.1",
    ],
)
def test_an_encoder_knows_whether_it_drops_anything(change):
    still = ("encoder.dropout=0", "encoder.embeddings.row_dropout=0", "encoder.mixer.dropout=0")
    still += ("encoder.mixer.between=null", "output.kind=untied", "encoder.memory=0")
    assert not toy("awd-lstm", *still).encoder.drops
    assert toy("awd-lstm", *still, f"encoder.{change}").encoder.drops


@pytest.mark.parametrize("change", ["depth.drop=0.1", "depth.every=2"])
def test_an_encoder_knows_whether_training_is_another_thing_than_use(change):
    assert not toy("bert").encoder.draws
    assert toy("bert", f"encoder.{change}").encoder.draws
    assert toy("reformer").encoder.draws


def test_a_strength_that_changes_is_compiled_once():
    graphs = CompileCounter()
    compiled = torch.compile(dropout, backend=graphs, dynamic=False)
    x = torch.randn(4, 8)
    for strength in (0.9, 0.5, 0.1, 0.0):
        compiled(x, 0.1, Noise.of(0, 1, strength=strength), 0)
    assert graphs.frame_count == 1
    compiled(x, 0.1, Noise.of(0, 1), 0)
    assert graphs.frame_count == 2
