"""Bottleneck blocks, with an input and an output projection."""

import copy

import pytest
import torch

from bertwright.encoder.bottleneck import BottleneckProjection
from bertwright.encoder.encoder import get_blocks
from bertwright.models.model import Model
from bertwright.modules.norms import NoNorm
from toy_recipes import VOCABULARY, shaken, toy

TOKENS = torch.randint(5, VOCABULARY, (3, 24), generator=torch.Generator().manual_seed(1))


def test_no_norm_is_gain_and_bias() -> None:
    norm = shaken(NoNorm(8), 0.5)
    x = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(norm(x), x * norm.weight + norm.bias)
    zero, one = norm(torch.zeros_like(x)), norm(torch.ones_like(x))
    torch.testing.assert_close(norm(3 * x + 1) - one, 3 * (norm(x) - zero))


@pytest.mark.parametrize(("system", "folds"), [("mobilebert", True), ("ib-bert", False)])
def test_folded_norms_give_the_same_states(system: str, folds: bool) -> None:
    encoder = shaken(Model.build(toy(system), VOCABULARY), 0.1).encoder.eval()
    folded = copy.deepcopy(encoder)
    projections = [
        module for module in folded.modules() if isinstance(module, BottleneckProjection)
    ]
    assert len(projections) == len(folded.blocks) * (2 if system == "mobilebert" else 1)
    for projection in projections:
        projection.fold_norm()
    assert all(
        isinstance(projection.norm, torch.nn.Identity) == folds for projection in projections
    )
    assert (
        sum(p.numel() for p in folded.parameters()) < sum(p.numel() for p in encoder.parameters())
    ) == folds
    torch.testing.assert_close(folded(TOKENS), encoder(TOKENS), atol=1e-5, rtol=1e-5)


def test_unshared_queries_read_the_outer_states() -> None:
    recipe = toy("mobilebert", "encoder.bottleneck.shared=false")
    model = shaken(Model.build(recipe, VOCABULARY), 0.1)
    width, inner = recipe.encoder.width, recipe.encoder.last_block_width
    with model.record("blocks.0.*") as values:
        model(TOKENS)
    projection = get_blocks(model.encoder)[0].sublayers["attention"].projection
    assert projection.weight.shape == (3 * inner, width)
    query = projection(values["blocks.0.input"])[..., :inner]
    heads = values["blocks.0.attention.query"].transpose(1, 2).flatten(2)
    torch.testing.assert_close(heads, query)
