"""Mixers beside attention: random features approach it, fixed patterns are what they say."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.mixers import FixedPatterns, RandomFeatures
from bertwright.encoder.mixers.fixed import PATTERNS, pattern_weights
from bertwright.encoder.mixers.random_features import (
    causal_sums,
    features,
    orthogonal_features,
    relu_features,
)
from bertwright.encoder.norms import LayerNormChoice
from bertwright.encoder.positions import NoPositions
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.visibility import View
from bertwright.recipes import Recipe


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def approximated(query: Tensor, key: Tensor, value: Tensor, number: int, causal: bool) -> Tensor:
    rows = orthogonal_features(number, query.shape[-1], seed=0).double()
    asking, asked = features(query, rows, (-1,)), features(key, rows, (-2, -1))
    if causal:
        return causal_sums(asking, asked, value)
    weights = asking @ asked.transpose(-1, -2)
    return weights / weights.sum(-1, keepdim=True) @ value


@pytest.mark.parametrize("causal", [False, True])
def test_more_features_come_closer_to_attention(causal: bool) -> None:
    query, key, value = (drawn(3, 2, 2, 150, 16) * 0.7).unbind(0)
    exact = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    errors = [
        float((approximated(query, key, value, number, causal) - exact).square().mean())
        for number in (64, 512, 4096)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < errors[0] / 10


def test_sums_by_chunk_are_the_weights_written_out() -> None:
    asking, asked = drawn(2, 1, 2, 150, 8).exp().unbind(0)
    value = drawn(1, 2, 150, 4)
    weights = (asking @ asked.transpose(-1, -2)).tril()
    expected = weights / weights.sum(-1, keepdim=True) @ value
    torch.testing.assert_close(causal_sums(asking, asked, value), expected)


def test_a_kernel_of_rectified_features() -> None:
    choice = RandomFeatures(head_width=8, features=32, function="relu")
    mixer = choice.build(16, NoPositions(), LayerNormChoice()).double()
    x = drawn(2, 6, 16)
    query, key, value = mixer.projection(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
    rows = orthogonal_features(32, 8, seed=0).double()
    weights = relu_features(query, rows) @ relu_features(key, rows).transpose(-1, -2)
    context = weights / weights.sum(-1, keepdim=True) @ value
    expected = mixer.output(context.transpose(1, 2).reshape(2, 6, 16))
    torch.testing.assert_close(mixer(x, Surroundings(View("all", order="all"))), expected)


def test_orthogonal_groups_are_orthogonal_and_as_long_as_gaussian_rows() -> None:
    rows = orthogonal_features(4096, 16, seed=0)
    group = F.normalize(rows[16:32])
    torch.testing.assert_close(group @ group.T, torch.eye(16), atol=1e-5, rtol=0)
    assert rows.square().sum(1).mean() == pytest.approx(16, rel=0.05)


def test_patterns_by_hand() -> None:
    place = torch.arange(6)
    seen = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    seen[..., 5] = False
    rows = {name: pattern_weights(name, place, seen)[0, 0, 3].tolist() for name in PATTERNS}
    assert rows == {
        "current": [0, 0, 0, 1, 0, 0],
        "previous": [0, 0, 1, 0, 0, 0],
        "next": [0, 0, 0, 0, 1, 0],
        "left": [1, 8, 0, 0, 0, 0],
        "right": [0, 0, 0, 0, 0, 0],
        "start": [125, 64, 27, 8, 1, 0],
        "end": [1, 8, 27, 64, 125, 0],
    }


@pytest.mark.parametrize("size", ["tiny", "mini", "base"])
def test_one_head_of_the_published_eight_is_learned(size: str) -> None:
    encoder = Recipe.load(f"fixed-patterns-{size}").encoder
    mixer = encoder.mixer.build(encoder.width, NoPositions(), LayerNormChoice())
    assert mixer.shape.heads - len(mixer.patterns) == 1


def test_fixed_weights_bear_few_digits() -> None:
    mixer = FixedPatterns(heads=7, dropout=0.0).build(28, NoPositions(), LayerNormChoice())
    x, around = drawn(1, 300, 28).float(), Surroundings(View("all"))
    exact, found = (mixer._bias(each, around).float() for each in (x, x.bfloat16()))
    torch.testing.assert_close(found.softmax(-1), exact.softmax(-1), rtol=0.03, atol=1e-4)


def test_a_fixed_head_is_the_weighted_mean_of_its_values() -> None:
    mixer = FixedPatterns(heads=8, dropout=0.0).build(32, NoPositions(), LayerNormChoice()).double()
    x = drawn(2, 6, 32)
    seen = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    seen[1, ..., 4:] = False
    found = mixer(x, Surroundings(View("mask", seen)))
    value = mixer.values(x).view(2, 6, 8, 4).transpose(1, 2)
    place = torch.arange(6)
    contexts: list[Tensor] = []
    for number, name in enumerate(PATTERNS):
        weights = pattern_weights(name, place, seen).double().expand(2, 1, 6, 6).clone()
        for row, query in (weights.sum(-1) == 0)[:, 0].nonzero().tolist():
            itself = seen[row, 0, query, query]
            weights[row, 0, query] = torch.eye(6)[query] if itself else seen[row, 0, query].double()
        weights = weights / weights.sum(-1, keepdim=True)
        contexts.append(weights[:, 0] @ value[:, number])
    query, key = mixer.learned(x).view(2, 6, 2, 4).permute(2, 0, 1, 3).unbind(0)
    contexts.append(F.scaled_dot_product_attention(query, key, value[:, 7], attn_mask=seen[:, 0]))
    expected = mixer.output(torch.cat(contexts, dim=-1))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
