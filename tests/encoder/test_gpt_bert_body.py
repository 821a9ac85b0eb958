"""The body of GPT-BERT against its equations, written out place by place (Samuel et al. 2023;
Charpentier and Samuel 2024)."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.encoder import blocks_of
from bertwright.encoder.positions.relative import log_buckets
from bertwright.encoder.roles import roles
from bertwright.encoder.visibility import Causal
from bertwright.model import Model
from bertwright.model.counting import parameters_by_part
from bertwright.recipes import Recipe
from recipes_at_toy_size import VOCABULARY, shaken, toy

LENGTH, WIDTH, HEADS = 9, 32, 2
EPSILON = 1e-5


def randomised(model: Model) -> Model:
    return shaken(model.double(), 0.3).requires_grad_(False)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=EPSILON)


def attention(block, x: Tensor, table: Tensor, causal: bool) -> Tensor:
    own = block.sublayers["attention"]
    query, key, value, gate = own.projection(norm(x)).chunk(4, dim=-1)
    far_query, far_key, _, _ = own.projection(table).chunk(4, dim=-1)
    width, contexts = WIDTH // HEADS, []
    for head in range(HEADS):
        mine = slice(head * width, (head + 1) * width)
        scores = torch.full((LENGTH, LENGTH), -math.inf, dtype=torch.float64)
        for i in range(LENGTH):
            for j in range(i + 1 if causal else LENGTH):
                bucket = int(log_buckets(torch.tensor(i - j), 32, 512)) + 31
                scores[i, j] = (
                    query[i, mine] @ key[j, mine]
                    + query[i, mine] @ far_key[bucket, mine]
                    + far_query[bucket, mine] @ key[j, mine]
                ) / math.sqrt(3 * width)
        contexts.append(torch.softmax(scores, -1) @ value[:, mine])
    return own.output(norm(torch.cat(contexts, -1) * F.gelu(gate)))


def feed_forward(block, x: Tensor) -> Tensor:
    own = block.sublayers["feed_forward"]
    open_half, gate = own.up(norm(x)).chunk(2, dim=-1)
    return own.down(norm(open_half * F.gelu(gate, approximate="tanh")))


@pytest.mark.parametrize("causal", [False, True])
def test_states_are_those_of_the_equations(causal: bool) -> None:
    model = randomised(Model.build(toy("gpt-bert"), VOCABULARY))
    generator = torch.Generator().manual_seed(1)
    pieces = torch.randint(5, VOCABULARY, (1, LENGTH), generator=generator)
    embeddings = model.encoder.embeddings
    scheme = embeddings.positions
    table = F.layer_norm(
        scheme.table.weight, (WIDTH,), scheme.norm.weight, scheme.norm.bias, EPSILON
    )
    x = norm(embeddings.pieces.weight[pieces[0]])
    made = [x]
    for block in blocks_of(model.encoder):
        for name in ("attention", "feed_forward"):
            change = feed_forward(block, x)
            if name == "attention":
                change = attention(block, x, table, causal)
            made.append(x + change)
            weights = block.weights[name].weights
            assert len(weights) == len(made)
            x = sum(weight * each for weight, each in zip(weights, made, strict=True))
    found = model(pieces, rule=Causal() if causal else None)
    torch.testing.assert_close(found[0], norm(x), atol=1e-9, rtol=1e-9)


def test_weights_of_all_sublayers_start_as_the_last_alone() -> None:
    weighted = Model.build(toy("gpt-bert"), VOCABULARY)
    plain = Model.build(toy("gpt-bert", "encoder.residual.kind=plain"), VOCABULARY)
    pieces = torch.arange(5, 5 + LENGTH)[None]
    assert torch.equal(weighted(pieces), plain(pieces))


def test_matrices_start_small_and_feed_forwards_smaller_from_block_to_block() -> None:
    recipe = toy("gpt-bert")
    model = Model.build(recipe, VOCABULARY)
    of = roles(model)
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        depth = of[name].depth if ".feed_forward." in name else None
        share = 1.0 if depth is None else 1 / math.sqrt(2 * (1 + depth))
        found = recipe.encoder.initialisation.deviation(parameter, of[name], 4)
        assert found == pytest.approx(math.sqrt(2 / (5 * WIDTH)) * share), name
        assert parameter.abs().max() <= 2 * found


@pytest.mark.parametrize(("size", "exact"), [("base", 112_367_104), ("small", 28_117_760)])
def test_without_gates_and_layer_weights_it_has_the_parameters_of_the_plain_file(
    size: str, exact: int
) -> None:
    plain = ("encoder.mixer.gate=null", "encoder.residual.kind=plain")
    recipe = Recipe.load(f"gpt-bert-{size}", *plain)
    assert sum(parameters_by_part(recipe).values()) == exact
