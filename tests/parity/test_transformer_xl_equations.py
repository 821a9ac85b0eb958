"""Transformer-XL against its equations, computed pair by pair (Dai et al. 2019, section 3).

Also its two layouts of scores by distance.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.encoder import get_blocks
from bertwright.models import Model
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.positions.distances import relative_shift
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import VOCABULARY, shaken, toy

WIDTH, HEADS, LENGTH, MEMORY = 32, 2, 5, 7
HEAD = WIDTH // HEADS


def build_model() -> Model:
    model = Model.build(toy("transformer-xl", f"encoder.memory_length={MEMORY}"), VOCABULARY)
    return shaken(model.double(), 0.3).requires_grad_(False)


def sinusoid(distance: int) -> Tensor:
    angles = [distance / 10000 ** (2 * k / WIDTH) for k in range(WIDTH // 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)


def attention(layer, x: Tensor, memory: Tensor, biases) -> Tensor:
    """Attend from x (L, D) to the memory (M, D) and to earlier tokens."""
    query, _, _ = layer.projection(x).chunk(3, dim=-1)
    _, key, value = layer.projection(torch.cat((memory, x))).chunk(3, dim=-1)
    memory_length, contexts = len(memory), []
    for head in range(HEADS):
        head_slice = slice(head * HEAD, (head + 1) * HEAD)
        u, v = biases.content_bias[head_slice], biases.position_bias[head_slice]
        distance_weight = layer.score_term.projection.weight[head_slice]
        scores = torch.full((len(x), memory_length + len(x)), -math.inf, dtype=torch.float64)
        for i in range(len(x)):
            for j in range(memory_length + i + 1):
                content = (query[i, head_slice] + u) @ key[j, head_slice]
                position = (query[i, head_slice] + v) @ (
                    distance_weight @ sinusoid(memory_length + i - j)
                )
                scores[i, j] = (content + position) / math.sqrt(HEAD)
        contexts.append(torch.softmax(scores, -1) @ value[:, head_slice])
    return layer.output(torch.cat(contexts, -1))


def test_hidden_states_follow_the_equations() -> None:
    model = build_model()
    tokens = torch.randint(
        5, VOCABULARY, (2, 3 * LENGTH), generator=torch.Generator().manual_seed(1)
    )
    memory = Memory.empty(MEMORY, tokens)
    memory_states = [[torch.zeros(0, WIDTH).double()] * 2 for _ in tokens]
    biases = model.encoder.embeddings.positions.query_biases
    for part in tokens.split(LENGTH, dim=1):
        states = model.encoder(part, memory=memory)
        memory = memory.next_memory(TokenInfo.from_token_ids(part))
        for sequence, token_ids in enumerate(part):
            x = math.sqrt(WIDTH) * model.encoder.embeddings.tokens.weight[token_ids]
            for number, block in enumerate(get_blocks(model.encoder)):
                past = memory_states[sequence][number]
                memory_states[sequence][number] = torch.cat((past, x))[-MEMORY:]
                change = attention(block.sublayers["attention"], x, past, biases)
                x = block.norms["attention"](x + change)
                feed_forward = block.sublayers["feed_forward"]
                x = block.norms["feed_forward"](x + feed_forward.down(F.relu(feed_forward.up(x))))
            torch.testing.assert_close(states[sequence], x, atol=1e-9, rtol=1e-9)
            logits = x @ model.encoder.embeddings.tokens.weight.T + model.output.bias
            torch.testing.assert_close(model.logits(states[sequence]), logits, atol=1e-9, rtol=1e-9)


def shift_of_transformer_xl(scores: Tensor) -> Tensor:
    """Apply the released shift: prepend a column of zeros, read with shorter rows."""
    length, columns = scores.shape
    return F.pad(scores, (1, 0)).view(columns + 1, length)[1:].view(length, columns)


def shift_of_xlnet(scores: Tensor) -> Tensor:
    """Apply the released shift of XLNet, whose columns include later positions."""
    length, columns = scores.shape
    return scores.view(columns, length)[1:].view(length, columns - 1)


@pytest.mark.parametrize(("queries", "memory_length"), [(5, 0), (4, 5), (1, 3), (7, 1)])
def test_relative_shift_equals_the_released_shifts(queries: int, memory_length: int) -> None:
    keys = queries + memory_length
    generator = torch.Generator().manual_seed(2)
    # XLNet and ours: columns for the distances from K - 1 down to -(L - 1), and one more.
    scores = torch.randn(queries, keys + queries, generator=generator)
    ours = relative_shift(scores[:, 1:], keys)
    released = shift_of_xlnet(scores)
    for i in range(queries):
        for j in range(keys):
            assert ours[i, j] == scores[i, queries - i + j]
            assert released[i, j] == ours[i, j]
    # Transformer-XL: distances from K - 1 down to 0; the causal mask covers the rest.
    causal = scores[:, 1 : keys + 1]
    released = shift_of_transformer_xl(causal)
    for i in range(queries):
        for j in range(memory_length + i + 1):
            assert causal[i, queries - 1 - i + j] == ours[i, j]
            assert released[i, j] == ours[i, j]
