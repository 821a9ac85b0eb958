"""The encoder of GPT-BERT against its equations, computed pair by pair.

Sources: Samuel et al. 2023; Charpentier and Samuel 2024.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.encoder import get_blocks
from bertwright.models import Model
from bertwright.models.costs import num_parameters_by_part
from bertwright.modules.attention.mask import CausalVisibility
from bertwright.modules.attention.positions.relative_vectors import log_bucket_position
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.recipes import Recipe
from toy_recipes import VOCABULARY, shaken, toy

LENGTH, WIDTH, HEADS = 9, 32, 2
EPSILON = 1e-5


def randomised(model: Model) -> Model:
    return shaken(model.double(), 0.3).requires_grad_(False)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=EPSILON)


def attention(block, x: Tensor, table: Tensor, causal: bool) -> Tensor:
    layer = block.sublayers["attention"]
    query, key, value, gate = layer.projection(norm(x)).chunk(4, dim=-1)
    distance_query, distance_key, _, _ = layer.projection(table).chunk(4, dim=-1)
    width, contexts = WIDTH // HEADS, []
    for head in range(HEADS):
        head_slice = slice(head * width, (head + 1) * width)
        scores = torch.full((LENGTH, LENGTH), -math.inf, dtype=torch.float64)
        for i in range(LENGTH):
            for j in range(i + 1 if causal else LENGTH):
                bucket = int(log_bucket_position(torch.tensor(i - j), 32, 512)) + 31
                scores[i, j] = (
                    query[i, head_slice] @ key[j, head_slice]
                    + query[i, head_slice] @ distance_key[bucket, head_slice]
                    + distance_query[bucket, head_slice] @ key[j, head_slice]
                ) / math.sqrt(3 * width)
        contexts.append(torch.softmax(scores, -1) @ value[:, head_slice])
    return layer.output(norm(torch.cat(contexts, -1) * F.gelu(gate)))


def feed_forward(block, x: Tensor) -> Tensor:
    layer = block.sublayers["feed_forward"]
    values, gate = layer.up(norm(x)).chunk(2, dim=-1)
    return layer.down(norm(values * F.gelu(gate, approximate="tanh")))


@pytest.mark.parametrize("causal", [False, True])
def test_hidden_states_follow_the_equations(causal: bool) -> None:
    model = randomised(Model.build(toy("gpt-bert"), VOCABULARY))
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, VOCABULARY, (1, LENGTH), generator=generator)
    embeddings = model.encoder.embeddings
    encoding = embeddings.positions
    table = F.layer_norm(
        encoding.table.weight, (WIDTH,), encoding.norm.weight, encoding.norm.bias, EPSILON
    )
    x = norm(embeddings.tokens.weight[tokens[0]])
    outputs = [x]
    for block in get_blocks(model.encoder):
        for name in ("attention", "feed_forward"):
            change = feed_forward(block, x)
            if name == "attention":
                change = attention(block, x, table, causal)
            outputs.append(x + change)
            weights = block.depth_averages[name].weights
            assert len(weights) == len(outputs)
            x = sum(weight * output for weight, output in zip(weights, outputs, strict=True))
    states = model(tokens, visibility=CausalVisibility() if causal else None)
    torch.testing.assert_close(states[0], norm(x), atol=1e-9, rtol=1e-9)


def test_depth_averages_start_as_the_last_output() -> None:
    weighted = Model.build(toy("gpt-bert"), VOCABULARY)
    plain = Model.build(toy("gpt-bert", "encoder.residual.kind=plain"), VOCABULARY)
    tokens = torch.arange(5, 5 + LENGTH)[None]
    assert torch.equal(weighted(tokens), plain(tokens))


def test_initialisation_shrinks_with_depth() -> None:
    recipe = toy("gpt-bert")
    model = Model.build(recipe, VOCABULARY)
    roles = get_parameter_roles(model)
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        depth = roles[name].depth if ".feed_forward." in name else None
        factor = 1.0 if depth is None else 1 / math.sqrt(2 * (1 + depth))
        std = recipe.encoder.initialisation.std_of(parameter, roles[name], 4)
        assert std == pytest.approx(math.sqrt(2 / (5 * WIDTH)) * factor), name
        assert parameter.abs().max() <= 2 * std


@pytest.mark.parametrize(("size", "exact"), [("base", 112_367_104), ("small", 28_117_760)])
def test_number_of_parameters_without_gates_and_depth_averages(size: str, exact: int) -> None:
    plain = ("encoder.mixer.gate=null", "encoder.residual.kind=plain")
    recipe = Recipe.load(f"gpt-bert-{size}", *plain)
    assert sum(num_parameters_by_part(recipe).values()) == exact
