"""Random features approach attention, and fixed patterns follow their definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.modules.attention.fixed_patterns import (
    PATTERNS,
    FixedPatternsConfig,
    pattern_weights,
)
from bertwright.modules.attention.mask import AttentionMask
from bertwright.modules.attention.positions import NoPositionsConfig
from bertwright.modules.attention.random_features import (
    RandomFeaturesConfig,
    causal_linear_attention,
    orthogonal_features,
    relu_features,
    softmax_features,
)
from bertwright.modules.context import AttentionContext, BlockContext
from bertwright.modules.norms import LayerNormConfig
from bertwright.recipes import Recipe


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def approximate_attention(
    query: Tensor, key: Tensor, value: Tensor, num_features: int, causal: bool
) -> Tensor:
    features = orthogonal_features(num_features, query.shape[-1], seed=0).double()
    query_features, key_features = (
        softmax_features(query, features, (-1,)),
        softmax_features(key, features, (-2, -1)),
    )
    if causal:
        return causal_linear_attention(query_features, key_features, value)
    weights = query_features @ key_features.transpose(-1, -2)
    return weights / weights.sum(-1, keepdim=True) @ value


@pytest.mark.parametrize("causal", [False, True])
def test_more_features_approximate_attention_better(causal: bool) -> None:
    query, key, value = (random_tensor(3, 2, 2, 150, 16) * 0.7).unbind(0)
    exact = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    errors = [
        float((approximate_attention(query, key, value, number, causal) - exact).square().mean())
        for number in (64, 512, 4096)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < errors[0] / 10


def test_padding_does_not_change_the_features_of_keys() -> None:
    keys, features = 3 * random_tensor(1, 2, 6, 16), orthogonal_features(64, 16, seed=0).double()
    keys[:, :, 4:] = 0.0
    is_real = torch.tensor([[True] * 4 + [False] * 2])
    padded = softmax_features(keys, features, (-2, -1), is_real)[:, :, :4]
    torch.testing.assert_close(padded, softmax_features(keys[:, :, :4], features, (-2, -1)))


def test_causal_sums_equal_explicit_weights() -> None:
    query_features, key_features = random_tensor(2, 1, 2, 150, 8).exp().unbind(0)
    value = random_tensor(1, 2, 150, 4)
    weights = (query_features @ key_features.transpose(-1, -2)).tril()
    expected = weights / weights.sum(-1, keepdim=True) @ value
    torch.testing.assert_close(
        causal_linear_attention(query_features, key_features, value), expected
    )


def test_relu_features() -> None:
    config = RandomFeaturesConfig(head_width=8, features=32, function="relu")
    mixer = config.build(16, NoPositionsConfig(), LayerNormConfig()).double()
    x = random_tensor(2, 6, 16)
    query, key, value = mixer.projection(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
    features = orthogonal_features(32, 8, seed=0).double()
    weights = relu_features(query, features) @ relu_features(key, features).transpose(-1, -2)
    context = weights / weights.sum(-1, keepdim=True) @ value
    expected = mixer.output(context.transpose(1, 2).reshape(2, 6, 16))
    torch.testing.assert_close(
        mixer(x, BlockContext(AttentionContext(AttentionMask("all", pattern="all")))), expected
    )


def test_feature_groups_are_orthogonal_with_gaussian_norms() -> None:
    rows = orthogonal_features(4096, 16, seed=0)
    group = F.normalize(rows[16:32])
    torch.testing.assert_close(group @ group.T, torch.eye(16), atol=1e-5, rtol=0)
    assert rows.square().sum(1).mean() == pytest.approx(16, rel=0.05)


def test_patterns_by_hand() -> None:
    index = torch.arange(6)
    allowed = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    allowed[..., 5] = False
    weights = {name: pattern_weights(name, index, allowed)[0, 0, 3].tolist() for name in PATTERNS}
    assert weights == {
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
    mixer = encoder.mixer.build(encoder.width, NoPositionsConfig(), LayerNormConfig())
    assert mixer.head_shape.num_heads - len(mixer.patterns) == 1


def test_fixed_weights_in_bfloat16() -> None:
    mixer = FixedPatternsConfig(heads=7, dropout=0.0).build(
        28, NoPositionsConfig(), LayerNormConfig()
    )
    x, mask = random_tensor(1, 300, 28).float(), AttentionMask("all")
    exact, rounded = (mixer._score_bias(t, mask).float() for t in (x, x.bfloat16()))
    torch.testing.assert_close(rounded.softmax(-1), exact.softmax(-1), rtol=0.03, atol=1e-4)


def test_a_fixed_head_is_the_weighted_mean_of_its_values() -> None:
    mixer = (
        FixedPatternsConfig(heads=8, dropout=0.0)
        .build(32, NoPositionsConfig(), LayerNormConfig())
        .double()
    )
    x = random_tensor(2, 6, 32)
    allowed = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    allowed[1, ..., 4:] = False
    actual = mixer(x, BlockContext(AttentionContext(AttentionMask("mask", allowed))))
    value = mixer.values(x).view(2, 6, 8, 4).transpose(1, 2)
    index = torch.arange(6)
    contexts: list[Tensor] = []
    for number, name in enumerate(PATTERNS):
        weights = pattern_weights(name, index, allowed).double().expand(2, 1, 6, 6).clone()
        for sequence, query in (weights.sum(-1) == 0)[:, 0].nonzero().tolist():
            sees_self = allowed[sequence, 0, query, query]
            weights[sequence, 0, query] = (
                torch.eye(6)[query] if sees_self else allowed[sequence, 0, query].double()
            )
        weights = weights / weights.sum(-1, keepdim=True)
        contexts.append(weights[:, 0] @ value[:, number])
    query, key = mixer.learned_query_key(x).view(2, 6, 2, 4).permute(2, 0, 1, 3).unbind(0)
    contexts.append(
        F.scaled_dot_product_attention(query, key, value[:, 7], attn_mask=allowed[:, 0])
    )
    expected = mixer.output(torch.cat(contexts, dim=-1))
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)
