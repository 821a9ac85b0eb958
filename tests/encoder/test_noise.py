"""Dropout is a function of where it happens."""

import pytest
import torch

from bertwright.encoder.kernels.noise import Noise, dropout


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
