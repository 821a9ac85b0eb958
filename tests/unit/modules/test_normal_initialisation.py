"""Initial weights are normal numbers, truncated if the recipe says so."""

import pytest
import torch
from scipy.stats import kstest, norm, truncnorm

from bertwright.modules.initialisation import fill_normal

STD = 0.02


def filled(truncation: float | None, key: int = 8, shape: tuple[int, ...] = (40, 500)):
    weight = torch.empty(shape)
    fill_normal(weight, STD, truncation, key)
    return weight


@pytest.mark.parametrize("truncation", [None, 0.1, 1.0, 2.0, 3.0])
def test_weights_follow_their_distribution(truncation: float | None) -> None:
    weight = filled(truncation)
    if truncation is None:
        distribution = norm(scale=STD)
    else:
        assert weight.abs().max() <= truncation * STD
        distribution = truncnorm(-truncation, truncation, scale=STD)
    assert kstest(weight.flatten().numpy(), distribution.cdf).pvalue > 0.01


def test_weights_depend_on_their_key_alone() -> None:
    torch.manual_seed(1)
    first = filled(2.0)
    torch.manual_seed(2)
    assert torch.equal(first, filled(2.0))
    assert not torch.equal(first, filled(2.0, key=10))


def test_other_shapes_and_types_have_the_same_weights() -> None:
    first = filled(2.0)
    assert torch.equal(first.flatten(), filled(2.0, shape=(20_000,)))
    weight = torch.empty(500, 40, dtype=torch.float64).T
    fill_normal(weight, STD, 2.0, 8)
    assert torch.equal(weight.float(), first)
