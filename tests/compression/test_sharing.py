"""Where blocks are alike already, and tables are narrow in truth, nothing changes."""

import pytest
import torch

from bertwright.compression.factorised_table import factorised
from bertwright.compression.sharing import Sharing
from bertwright.errors import UserError
from bertwright.model.model import Model
from recipes_at_toy_size import VOCABULARY, shaken, toy
from small_encoders import Pretrained

LAYERS = 3
PIECES = torch.randint(5, VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(0))


def drawn(system: str, *changes: str) -> Model:
    recipe = toy(system, f"encoder.depth.layers={LAYERS}", *changes)
    return shaken(Model.build(recipe, VOCABULARY), 0.1).eval()


@torch.no_grad()
def states(model: Model) -> torch.Tensor:
    return model.encoder.double()(PIECES)


@pytest.mark.parametrize("what", ["all", "attention", "feed-forward"])
@pytest.mark.parametrize("begins", ["mean", 2])
def test_equal_blocks_are_one(what: str, begins: str | int) -> None:
    whole = drawn("bert")
    first = whole.encoder.blocks[0].state_dict()
    for block in whole.encoder.blocks:
        block.load_state_dict(first)
    small = Sharing(what=what, begins=begins).shared(whole)
    torch.testing.assert_close(states(small), states(whole), rtol=0, atol=1e-6)
    assert small.recipe.encoder.depth.sharing == what
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in whole.parameters())


def test_what_is_shared_begins_as_the_mean_or_as_one_and_the_rest_as_it_was() -> None:
    whole = drawn("bert")
    name = "sublayers.{}.weight"
    attention, feed_forward = (name.format(n) for n in ("attention.output", "feed_forward.up"))
    blocks = [dict(block.named_parameters()) for block in whole.encoder.blocks]
    for begins in ("mean", 3):
        small = Sharing(what="attention", begins=begins).shared(whole)
        own = [dict(block.named_parameters()) for block in small.encoder.blocks]
        mean = torch.stack([block[attention] for block in blocks]).mean(0)
        expected = mean if begins == "mean" else blocks[2][attention]
        assert own[0][attention].equal(expected)
        assert own[0][attention] is own[2][attention]
        for block, before in zip(own, blocks, strict=True):
            assert block[feed_forward].equal(before[feed_forward])


@pytest.mark.parametrize("system", ["bert", "roberta", "gpt", "modernbert"])
def test_tables_of_a_plane_lose_nothing_in_two_factors(system: str) -> None:
    whole = drawn(system)
    width, rank = whole.recipe.encoder.width, 6
    draw = torch.Generator().manual_seed(1)
    plane = torch.randn(rank, width, generator=draw)
    for table in whole.encoder.embeddings.parameters():
        if table.ndim == 2:
            table.data = torch.randn(len(table), rank, generator=draw) @ plane
    # Centred vectors of the plane lie in one of at most the same rank.
    small = factorised(whole, rank + 1)
    assert small.embedding.shape == (VOCABULARY, rank + 1)
    torch.testing.assert_close(states(small), states(whole), rtol=1e-4, atol=1e-4)


def test_a_wider_plane_is_nearer() -> None:
    whole = drawn("bert")
    apart = [
        float((states(factorised(whole, width)) - states(whole)).square().mean())
        for width in (4, 16, 31)
    ]
    assert apart == sorted(apart, reverse=True)


@pytest.mark.parametrize(
    ("system", "sharing", "said"),
    [
        ("bert", Sharing(begins=9), "there is no block 9"),
        ("albert", Sharing(narrower=2), "leave narrower out"),
        ("transformer", Sharing(narrower=2), "leave narrower out"),
        ("elmo", Sharing(), "sharing to none"),
    ],
)
def test_what_cannot_be_shared_is_said(
    system: str, sharing: Sharing, said: str, pretrained: Pretrained
) -> None:
    with pytest.raises(UserError, match=said):
        sharing.of(pretrained(system))
