"""Transformer-XL against its equations, written out place by place (Dai et al. 2019, section 3),
and its two ways to lay out scores by distance."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.encoder import blocks_of
from bertwright.encoder.kernels.shift import by_place
from bertwright.encoder.memory import Memory
from bertwright.encoder.stream import Coordinates
from bertwright.model import Model
from recipes_at_toy_size import VOCABULARY, shaken, toy

WIDTH, HEADS, LENGTH, MEMORY = 32, 2, 5, 7
HEAD = WIDTH // HEADS


def built() -> Model:
    model = Model.build(toy("transformer-xl", f"encoder.memory={MEMORY}"), VOCABULARY)
    return shaken(model.double(), 0.3).requires_grad_(False)


def wave(distance: int) -> Tensor:
    angles = [distance / 10000 ** (2 * k / WIDTH) for k in range(WIDTH // 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)


def attention(own, x: Tensor, remembered: Tensor, stand_ins) -> Tensor:
    """x (L, D) that sees what is remembered (M, D) and what stands before."""
    query, _, _ = own.projection(x).chunk(3, dim=-1)
    _, key, value = own.projection(torch.cat((remembered, x))).chunk(3, dim=-1)
    before, contexts = len(remembered), []
    for head in range(HEADS):
        mine = slice(head * HEAD, (head + 1) * HEAD)
        u, v = stand_ins.key[mine], stand_ins.distance[mine]
        far = own.term.projection.weight[mine]
        scores = torch.full((len(x), before + len(x)), -math.inf, dtype=torch.float64)
        for i in range(len(x)):
            for j in range(before + i + 1):
                by_content = (query[i, mine] + u) @ key[j, mine]
                by_distance = (query[i, mine] + v) @ (far @ wave(before + i - j))
                scores[i, j] = (by_content + by_distance) / math.sqrt(HEAD)
        contexts.append(torch.softmax(scores, -1) @ value[:, mine])
    return own.output(torch.cat(contexts, -1))


def test_states_are_those_of_the_equations_part_after_part() -> None:
    model = built()
    pieces = torch.randint(
        5, VOCABULARY, (2, 3 * LENGTH), generator=torch.Generator().manual_seed(1)
    )
    kept = Memory.empty(MEMORY, pieces)
    remembered = [[torch.zeros(0, WIDTH).double()] * 2 for _ in pieces]
    stand_ins = model.encoder.embeddings.positions.stand_ins
    for part in pieces.split(LENGTH, dim=1):
        found = model.encoder(part, memory=kept)
        kept = kept.following(Coordinates.plain(part))
        for row, own in enumerate(part):
            x = math.sqrt(WIDTH) * model.encoder.embeddings.pieces.weight[own]
            for number, block in enumerate(blocks_of(model.encoder)):
                past = remembered[row][number]
                remembered[row][number] = torch.cat((past, x))[-MEMORY:]
                change = attention(block.sublayers["attention"], x, past, stand_ins)
                x = block.norms["attention"](x + change)
                inner = block.sublayers["feed_forward"]
                x = block.norms["feed_forward"](x + inner.down(F.relu(inner.up(x))))
            torch.testing.assert_close(found[row], x, atol=1e-9, rtol=1e-9)
            answers = x @ model.encoder.embeddings.pieces.weight.T + model.output.bias
            torch.testing.assert_close(model.logits(found[row]), answers, atol=1e-9, rtol=1e-9)


def of_transformer_xl(scores: Tensor) -> Tensor:
    """The released shift: a column of zeros in front, then rows that are read one shorter."""
    length, columns = scores.shape
    return F.pad(scores, (1, 0)).view(columns + 1, length)[1:].view(length, columns)


def of_xlnet(scores: Tensor) -> Tensor:
    """The released shift of XLNet, whose columns go on to places that come later."""
    length, columns = scores.shape
    return scores.view(columns, length)[1:].view(length, columns - 1)


@pytest.mark.parametrize(("queries", "remembered"), [(5, 0), (4, 5), (1, 3), (7, 1)])
def test_scores_by_distance_are_laid_out_as_the_papers_do(queries: int, remembered: int) -> None:
    keys = queries + remembered
    generator = torch.Generator().manual_seed(2)
    # Of XLNet, and ours: columns for the distances from K - 1 down to -(L - 1), and one more.
    wide = torch.randn(queries, keys + queries, generator=generator)
    ours = by_place(wide[:, 1:], keys)
    released = of_xlnet(wide)
    for i in range(queries):
        for j in range(keys):
            assert ours[i, j] == wide[i, queries - i + j]
            assert released[i, j] == ours[i, j]
    # Of Transformer-XL: distances from K - 1 down to 0; the rest is hidden by the causal rule.
    causal = wide[:, 1 : keys + 1]
    released = of_transformer_xl(causal)
    for i in range(queries):
        for j in range(remembered + i + 1):
            assert causal[i, queries - 1 - i + j] == ours[i, j]
            assert released[i, j] == ours[i, j]
