"""Dropout is a function of seed, step, stream and position."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from bertwright.modules.dropout_rng import (
    DropoutRng,
    dropout,
    embedding_dropout,
    locked_dropout,
    weight_dropout,
)
from toy_recipes import toy


def test_without_rng_or_rate_nothing_changes():
    x = torch.randn(2, 3)
    assert dropout(x, 0.5, None, 0) is x
    assert dropout(x, 0.0, DropoutRng.for_step(0, 0), 0) is x


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_rate_and_mean_are_right(rate):
    x = torch.ones(64, 4096)
    y = dropout(x, rate, DropoutRng.for_step(3, 5), 1)
    assert float((y == 0).float().mean()) == pytest.approx(rate, abs=0.003)
    assert float(y.mean()) == pytest.approx(1.0, abs=0.01)


def test_dropout_is_independent_of_micro_batches():
    x = torch.ones(8, 5, 7)
    whole = dropout(x, 0.3, DropoutRng.for_step(1, 2), 4)
    parts = [
        dropout(x[i : i + 2], 0.3, DropoutRng.for_step(1, 2, first_sequence=i), 4)
        for i in range(0, 8, 2)
    ]
    assert torch.equal(whole, torch.cat(parts))


def test_steps_blocks_and_streams_are_independent():
    x = torch.ones(16, 1024)
    masks = [
        dropout(x, 0.5, dropout_rng, stream) > 0
        for dropout_rng, stream in [
            (DropoutRng.for_step(0, 1), 0),
            (DropoutRng.for_step(0, 2), 0),
            (DropoutRng.for_step(1, 1), 0),
            (DropoutRng.for_step(0, 1).for_block(0), 0),
            (DropoutRng.for_step(0, 1), 1),
        ]
    ]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert float((one == other).float().mean()) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_scale_multiplies_the_rate(dtype):
    x = torch.randn(32, 256).to(dtype)
    weaker = dropout(x, 0.4, DropoutRng.for_step(3, 5, dropout_scale=0.25), 1)
    assert weaker.dtype == dtype
    assert torch.equal(weaker, dropout(x, 0.1, DropoutRng.for_step(3, 5), 1))
    assert torch.equal(dropout(x, 0.4, DropoutRng.for_step(3, 5, dropout_scale=0.0), 1), x)
    block = DropoutRng.for_step(3, 5, dropout_scale=0.25).for_block(2)
    assert torch.equal(
        dropout(x, 0.4, block, 1), dropout(x, 0.1, DropoutRng.for_step(3, 5).for_block(2), 1)
    )


def dropout_of_embeddings(x, rate, dropout_rng, stream):
    return embedding_dropout(
        x, torch.arange(x.shape[1]).expand(x.shape[:2]), rate, dropout_rng, stream
    )


@pytest.mark.parametrize("kind", [locked_dropout, dropout_of_embeddings, weight_dropout])
def test_dropout_scale_multiplies_the_rate_of_every_dropout(kind):
    x = torch.randn(8, 64, 16)
    weaker = kind(x, 0.4, DropoutRng.for_step(3, 5, dropout_scale=0.25), 1)
    assert torch.equal(weaker, kind(x, 0.1, DropoutRng.for_step(3, 5), 1))
    assert torch.equal(kind(x, 0.4, DropoutRng.for_step(3, 5, dropout_scale=0.0), 1), x)
    assert float((weaker == 0).float().mean()) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize(
    "change",
    [
        "dropout={hidden: 0.1}",
        "dropout.output=0.1",
        "embeddings.embedding_dropout=0.1",
        "mixer.dropout=0.1",
    ],
)
def test_has_dropout(change):
    no_dropout = (
        "encoder.dropout=0",
        "encoder.embeddings.embedding_dropout=0",
        "encoder.mixer.dropout=0",
    )
    no_dropout += ("encoder.mixer.between=null", "output.kind=untied", "encoder.memory_length=0")
    assert not toy("awd-lstm", *no_dropout).encoder.has_dropout
    assert toy("awd-lstm", *no_dropout, f"encoder.{change}").encoder.has_dropout


@pytest.mark.parametrize("change", ["depth.drop=0.1", "depth.every=2"])
def test_is_stochastic(change):
    assert not toy("bert").encoder.is_stochastic
    assert toy("bert", f"encoder.{change}").encoder.is_stochastic
    assert toy("reformer").encoder.is_stochastic


def test_a_changing_dropout_scale_compiles_once():
    graphs = CompileCounter()
    compiled = torch.compile(dropout, backend=graphs, dynamic=False)
    x = torch.randn(4, 8)
    for dropout_scale in (0.9, 0.5, 0.1, 0.0):
        compiled(x, 0.1, DropoutRng.for_step(0, 1, dropout_scale=dropout_scale), 0)
    assert graphs.frame_count == 1
    compiled(x, 0.1, DropoutRng.for_step(0, 1), 0)
    assert graphs.frame_count == 2
