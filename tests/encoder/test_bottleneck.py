"""Blocks within a way in and a way out."""

import copy

import pytest
import torch

from bertwright.encoder.bottleneck import Narrowed
from bertwright.encoder.encoder import blocks_of
from bertwright.encoder.norms import NoNorm
from bertwright.model.model import Model
from recipes_at_toy_size import VOCABULARY, shaken, toy

PIECES = torch.randint(5, VOCABULARY, (3, 24), generator=torch.Generator().manual_seed(1))


def test_no_norm_is_a_gain_and_a_bias_and_nothing_else() -> None:
    norm = shaken(NoNorm(8), 0.5)
    x = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(norm(x), x * norm.weight + norm.bias)
    zero, one = norm(torch.zeros_like(x)), norm(torch.ones_like(x))
    torch.testing.assert_close(norm(3 * x + 1) - one, 3 * (norm(x) - zero))


@pytest.mark.parametrize(("system", "folds"), [("mobilebert", True), ("ib-bert", False)])
def test_what_is_folded_into_a_matrix_gives_the_same(system: str, folds: bool) -> None:
    encoder = shaken(Model.build(toy(system), VOCABULARY), 0.1).encoder.eval()
    folded = copy.deepcopy(encoder)
    ways = [module for module in folded.modules() if isinstance(module, Narrowed)]
    assert len(ways) == len(folded.blocks) * (2 if system == "mobilebert" else 1)
    for way in ways:
        way.fold()
    assert all(isinstance(way.norm, torch.nn.Identity) == folds for way in ways)
    assert (
        sum(p.numel() for p in folded.parameters()) < sum(p.numel() for p in encoder.parameters())
    ) == folds
    torch.testing.assert_close(folded(PIECES), encoder(PIECES), atol=1e-5, rtol=1e-5)


def test_where_nothing_is_shared_queries_read_the_states_between_the_blocks() -> None:
    recipe = toy("mobilebert", "encoder.bottleneck.shared=false")
    model = shaken(Model.build(recipe, VOCABULARY), 0.1)
    width, inner = recipe.encoder.width, recipe.encoder.inner_width
    with model.record("blocks.0.*") as values:
        model(PIECES)
    projection = blocks_of(model.encoder)[0].sublayers["attention"].projection
    assert projection.weight.shape == (3 * inner, width)
    query = projection(values["blocks.0.input"])[..., :inner]
    heads = values["blocks.0.attention.query"].transpose(1, 2).flatten(2)
    torch.testing.assert_close(heads, query)
