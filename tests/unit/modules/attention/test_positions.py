"""Relative positions against their equations, computed pair by pair."""

import math

import pytest
import torch
from torch import Tensor, nn
from transformers.models.t5.modeling_t5 import T5Attention

from bertwright.modules.attention.positions import (
    AlibiConfig,
    DisentangledPositionsConfig,
    HeadShape,
    RelativeBiasConfig,
    TransformerXLPositionsConfig,
)
from bertwright.modules.attention.positions.distances import relative_shift
from bertwright.modules.attention.positions.relative_bias import relative_position_bucket
from bertwright.modules.attention.positions.relative_vectors import log_bucket_position
from bertwright.modules.initialisation import FanInInitialisationConfig, initialise
from bertwright.modules.token_tensors import TokenInfo

SHAPE = HeadShape(num_heads=2, head_width=4, width=8)
QUERIES, KEYS = 5, 9
QUERY_AND_KEY_INFO = tuple(
    TokenInfo(torch.arange(KEYS)[None, -number:]) for number in (QUERIES, KEYS)
)
"""Queries are the last of the keys' tokens."""


def randomised(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return module.requires_grad_(False)


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def distance_between(i: int, j: int) -> int:
    """Return the distance from query i back to key j."""
    return i + KEYS - QUERIES - j


def scores_by_hand(term) -> Tensor:
    """Return scores (1, H, Lq, Lk) from a function of head, query and key."""
    scores = [
        [[term(h, i, j) for j in range(KEYS)] for i in range(QUERIES)]
        for h in range(SHAPE.num_heads)
    ]
    return torch.tensor(scores, dtype=torch.float64)[None]


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (4, 9), (1, 3), (7, 8)])
def test_skewing_is_a_gather(queries: int, keys: int) -> None:
    scores = random_tensor(2, 3, queries, queries + keys - 1)
    distance = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
    column = (keys - 1 - distance).expand(2, 3, queries, keys)
    assert torch.equal(relative_shift(scores, keys), scores.gather(-1, column))


def test_alibi_grows_with_the_distance() -> None:
    relative_positions = AlibiConfig().build(8, SHAPE).relative_positions(*QUERY_AND_KEY_INFO)
    expected = scores_by_hand(
        lambda h, i, j: -(2.0 ** (-8 * (h + 1) / 2)) * abs(distance_between(i, j))
    )
    torch.testing.assert_close(relative_positions.bias.double(), expected)


@pytest.mark.parametrize("one_sided", [False, True])
def test_buckets_equal_t5(one_sided: bool) -> None:
    distance = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(
        -distance, bidirectional=not one_sided, num_buckets=32, max_distance=128
    )
    assert torch.equal(relative_position_bucket(distance, 32, 128, one_sided), expected)


def test_relative_bias_by_bucket() -> None:
    encoding = randomised(RelativeBiasConfig(buckets=8, longest=6).build(8, SHAPE))
    relative_positions = encoding.relative_positions(*QUERY_AND_KEY_INFO)

    def term(h: int, i: int, j: int) -> float:
        bucket = int(
            relative_position_bucket(torch.tensor(distance_between(i, j)), 8, 6, one_sided=False)
        )
        return float(encoding.table[bucket, h])

    torch.testing.assert_close(relative_positions.bias, scores_by_hand(term))


def test_gated_relative_bias() -> None:
    config = RelativeBiasConfig(buckets=8, longest=6, gated=True)
    encoding, gates = randomised(config.build(8, SHAPE)), randomised(config.build_score_term(SHAPE))
    relative_positions = encoding.relative_positions(*QUERY_AND_KEY_INFO)
    query, key = random_tensor(1, 2, QUERIES, 4), random_tensor(1, 2, KEYS, 4)

    def term(h: int, i: int, j: int) -> float:
        bias = relative_positions.bias[0, h, i, j]
        update, reset = (
            torch.sigmoid(g.weight[0] @ query[0, h, i]) for g in (gates.update, gates.reset)
        )
        return float(bias + update * bias + (1 - update) * gates.gain[h] * reset * bias)

    scores = gates(query, key, relative_positions, nn.Linear(1, 1))
    torch.testing.assert_close(scores, scores_by_hand(term), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("untied", [False, True])
def test_transformer_xl_scores(untied: bool) -> None:
    config = TransformerXLPositionsConfig(untied=untied, longest=6)
    encoding, score_term = (
        randomised(config.build(8, SHAPE)),
        randomised(config.build_score_term(SHAPE)),
    )
    relative_positions = encoding.relative_positions(*QUERY_AND_KEY_INFO)
    query, key = random_tensor(1, 2, QUERIES, 4), random_tensor(1, 2, KEYS, 4)
    biases = score_term.query_biases or encoding.query_biases
    content_bias, position_bias = (
        v.view(2, 4) for v in (biases.content_bias, biases.position_bias)
    )

    def sinusoid(distance: int) -> Tensor:
        angle = [distance / 10000 ** (2 * k / 8) for k in range(4)]
        return torch.tensor([*map(math.sin, angle), *map(math.cos, angle)], dtype=torch.float64)

    def term(h: int, i: int, j: int) -> float:
        vector = (
            score_term.projection.weight @ sinusoid(max(-6, min(6, distance_between(i, j))))
        ).view(2, 4)[h]
        content = content_bias[h] @ key[0, h, j]
        return float(content + (query[0, h, i] + position_bias[h]) @ vector) / 2

    scores = score_term(query, key, relative_positions, nn.Linear(1, 1))
    torch.testing.assert_close(scores, scores_by_hand(term), atol=1e-9, rtol=1e-9)


def test_log_buckets_are_exact_near_and_grow_far() -> None:
    buckets = log_bucket_position(torch.arange(-600, 601), 32, 512)
    assert buckets[600 - 15 : 600 + 16].tolist() == list(range(-15, 16))
    assert buckets.max() == 31
    assert torch.equal(buckets, -buckets.flip(0))
    assert (buckets.diff() >= 0).all()
    # From 16 on: ceil(15 ln(d / 16) / ln(511 / 16)) + 16.
    assert buckets[600 + 100] == math.ceil(15 * math.log(100 / 16) / math.log(511 / 16)) + 16


def test_disentangled_scores() -> None:
    config = DisentangledPositionsConfig(buckets=4, longest=8)
    encoding, score_term = randomised(config.build(8, SHAPE)), config.build_score_term(SHAPE)
    fused = randomised(nn.Linear(8, 24))
    relative_positions = encoding.relative_positions(*QUERY_AND_KEY_INFO)
    query, key = random_tensor(1, 2, QUERIES, 4), random_tensor(1, 2, KEYS, 4)
    norm = encoding.norm
    table = nn.functional.layer_norm(encoding.table.weight, (8,), norm.weight, norm.bias, 1e-7)

    def term(h: int, i: int, j: int) -> float:
        bucket = int(log_bucket_position(torch.tensor(distance_between(i, j)), 4, 8)) + 3
        as_query, as_key, _ = fused(table[bucket]).view(3, 2, 4)
        return float(query[0, h, i] @ as_key[h] + as_query[h] @ key[0, h, j]) / 12**0.5

    scores = score_term(query, key, relative_positions, fused)
    torch.testing.assert_close(scores, scores_by_hand(term), atol=1e-9, rtol=1e-9)
    assert score_term.scale == pytest.approx(12**-0.5)


def test_the_bias_table_is_initialised_by_the_width_of_the_model() -> None:
    bucketed = RelativeBiasConfig(buckets=512, longest=256).build(
        64, HeadShape(num_heads=8, head_width=8, width=64)
    )
    initialise(bucketed, FanInInitialisationConfig(gain=1.0, table=1.0), seed=0)
    assert float(bucketed.table.detach().std()) == pytest.approx(1 / 8, rel=0.05)
