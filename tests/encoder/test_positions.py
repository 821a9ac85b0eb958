"""Positions by distance, against their equations written out place by place."""

import math

import pytest
import torch
from torch import Tensor, nn
from transformers.models.t5.modeling_t5 import T5Attention

from bertwright.encoder.initialisation import FanIn, initialise
from bertwright.encoder.kernels.shift import by_place
from bertwright.encoder.positions import (
    Alibi,
    Bucketed,
    HeadShape,
    LogBuckets,
    TransformerXl,
)
from bertwright.encoder.positions.biases import buckets
from bertwright.encoder.positions.relative import log_buckets
from bertwright.encoder.stream import Coordinates

SHAPE = HeadShape(heads=2, head_width=4, width=8)
QUERIES, KEYS = 5, 9
PLACES = tuple(Coordinates(torch.arange(KEYS)[None, -number:]) for number in (QUERIES, KEYS))
"""Queries are the last of the keys' places."""


def randomised(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return module.requires_grad_(False)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def far(i: int, j: int) -> int:
    """From query i back to key j: queries are the last of the keys' places."""
    return i + KEYS - QUERIES - j


def by_hand(term) -> Tensor:
    """(1, H, Lq, Lk) from a function of head, query and key."""
    rows = [
        [[term(h, i, j) for j in range(KEYS)] for i in range(QUERIES)] for h in range(SHAPE.heads)
    ]
    return torch.tensor(rows, dtype=torch.float64)[None]


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (4, 9), (1, 3), (7, 8)])
def test_skewing_is_a_gather(queries: int, keys: int) -> None:
    scores = drawn(2, 3, queries, queries + keys - 1)
    place = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
    column = (keys - 1 - place).expand(2, 3, queries, keys)
    assert torch.equal(by_place(scores, keys), scores.gather(-1, column))


def test_a_penalty_grows_with_the_distance() -> None:
    relation = Alibi().build(8, SHAPE).relation(*PLACES)
    expected = by_hand(lambda h, i, j: -(2.0 ** (-8 * (h + 1) / 2)) * abs(far(i, j)))
    torch.testing.assert_close(relation.bias.double(), expected)


@pytest.mark.parametrize("one_sided", [False, True])
def test_buckets_are_those_of_t5(one_sided: bool) -> None:
    distance = torch.arange(-300, 301)
    stock = T5Attention._relative_position_bucket(
        -distance, bidirectional=not one_sided, num_buckets=32, max_distance=128
    )
    assert torch.equal(buckets(distance, 32, 128, one_sided), stock)


def test_a_bias_is_looked_up_by_bucket() -> None:
    scheme = randomised(Bucketed(buckets=8, longest=6).build(8, SHAPE))
    relation = scheme.relation(*PLACES)

    def term(h: int, i: int, j: int) -> float:
        bucket = int(buckets(torch.tensor(far(i, j)), 8, 6, one_sided=False))
        return float(scheme.table[bucket, h])

    torch.testing.assert_close(relation.bias, by_hand(term))


def test_gates_scale_the_bias_by_the_query() -> None:
    choice = Bucketed(buckets=8, longest=6, gated=True)
    scheme, gates = randomised(choice.build(8, SHAPE)), randomised(choice.term(SHAPE))
    relation = scheme.relation(*PLACES)
    query, key = drawn(1, 2, QUERIES, 4), drawn(1, 2, KEYS, 4)

    def term(h: int, i: int, j: int) -> float:
        d = relation.bias[0, h, i, j]
        update, reset = (
            torch.sigmoid(g.weight[0] @ query[0, h, i]) for g in (gates.update, gates.reset)
        )
        return float(d + update * d + (1 - update) * gates.gain[h] * reset * d)

    found = gates(query, key, relation, nn.Linear(1, 1))
    torch.testing.assert_close(found, by_hand(term), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("untied", [False, True])
def test_the_terms_of_transformer_xl(untied: bool) -> None:
    choice = TransformerXl(untied=untied, longest=6)
    scheme, own = randomised(choice.build(8, SHAPE)), randomised(choice.term(SHAPE))
    relation = scheme.relation(*PLACES)
    query, key = drawn(1, 2, QUERIES, 4), drawn(1, 2, KEYS, 4)
    stand_ins = own.stand_ins or scheme.stand_ins
    for_key, for_distance = (v.view(2, 4) for v in (stand_ins.key, stand_ins.distance))

    def wave(distance: int) -> Tensor:
        angle = [distance / 10000 ** (2 * k / 8) for k in range(4)]
        return torch.tensor([*map(math.sin, angle), *map(math.cos, angle)], dtype=torch.float64)

    def term(h: int, i: int, j: int) -> float:
        vector = (own.projection.weight @ wave(max(-6, min(6, far(i, j))))).view(2, 4)[h]
        by_key = for_key[h] @ key[0, h, j]
        return float(by_key + (query[0, h, i] + for_distance[h]) @ vector) / 2

    found = own(query, key, relation, nn.Linear(1, 1))
    torch.testing.assert_close(found, by_hand(term), atol=1e-9, rtol=1e-9)


def test_log_buckets_are_exact_near_and_grow_far() -> None:
    found = log_buckets(torch.arange(-600, 601), 32, 512)
    assert found[600 - 15 : 600 + 16].tolist() == list(range(-15, 16))
    assert found.max() == 31
    assert torch.equal(found, -found.flip(0))
    assert (found.diff() >= 0).all()
    # From 16 on: ceil(15 ln(d / 16) / ln(511 / 16)) + 16.
    assert found[600 + 100] == math.ceil(15 * math.log(100 / 16) / math.log(511 / 16)) + 16


def test_pieces_and_distances_meet_in_both_directions() -> None:
    choice = LogBuckets(buckets=4, longest=8)
    scheme, own = randomised(choice.build(8, SHAPE)), choice.term(SHAPE)
    fused = randomised(nn.Linear(8, 24))
    relation = scheme.relation(*PLACES)
    query, key = drawn(1, 2, QUERIES, 4), drawn(1, 2, KEYS, 4)
    norm = scheme.norm
    table = nn.functional.layer_norm(scheme.table.weight, (8,), norm.weight, norm.bias, 1e-7)

    def term(h: int, i: int, j: int) -> float:
        bucket = int(log_buckets(torch.tensor(far(i, j)), 4, 8)) + 3
        as_query, as_key, _ = fused(table[bucket]).view(3, 2, 4)
        return float(query[0, h, i] @ as_key[h] + as_query[h] @ key[0, h, j]) / 12**0.5

    found = own(query, key, relation, fused)
    torch.testing.assert_close(found, by_hand(term), atol=1e-9, rtol=1e-9)
    assert own.scale == pytest.approx(12**-0.5)


def test_a_table_of_buckets_starts_by_the_width_of_the_model() -> None:
    bucketed = Bucketed(buckets=512, longest=256).build(
        64, HeadShape(heads=8, head_width=8, width=64)
    )
    initialise(bucketed, FanIn(gain=1.0, table=1.0), seed=0)
    assert float(bucketed.table.detach().std()) == pytest.approx(1 / 8, rel=0.05)
