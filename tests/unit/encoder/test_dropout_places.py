"""Dropout within the feed-forward, on relative positions and after the last block."""

import pytest
import torch

from bertwright.encoder.encoder import get_blocks
from bertwright.models import Model
from bertwright.modules.dropout_rng import DropoutRng
from toy_recipes import VOCABULARY, shaken, toy

NONE = (
    "encoder.dropout=0",
    "encoder.mixer.dropout=0",
    "encoder.positions.dropout=0",
    "encoder.feed_forward.dropout=0",
    "encoder.output_dropout=0",
)
RNG = DropoutRng.for_step(1, 2)
TOKENS = torch.randint(5, VOCABULARY, (3, 8), generator=torch.Generator().manual_seed(1))


def build(*overrides: str) -> Model:
    recipe = toy("xlnet", *NONE, "encoder.memory_length=0", "assembly=segment-pair", *overrides)
    return shaken(Model.build(recipe, VOCABULARY), 0.1).requires_grad_(False)


@pytest.mark.parametrize("setting", ["positions.dropout", "feed_forward.dropout", "output_dropout"])
def test_it_is_applied_in_training_only(setting: str) -> None:
    model = build(f"encoder.{setting}=0.5")
    assert model.recipe.encoder.has_dropout
    assert not build().recipe.encoder.has_dropout
    plain = build().encoder(TOKENS)
    assert torch.equal(model.encoder(TOKENS), plain)
    dropped = model.encoder(TOKENS, dropout_rng=RNG)
    assert not torch.allclose(dropped, plain)
    # The same step gives the same numbers, for all positions or for some, whole or in parts.
    assert torch.equal(model.encoder(TOKENS, dropout_rng=RNG), dropped)
    positions = torch.tensor([3, 9, 22])
    some = model.encoder(TOKENS, dropout_rng=RNG, output_positions=positions)
    torch.testing.assert_close(some, dropped.flatten(0, 1)[positions])
    last = DropoutRng.for_step(1, 2, first_sequence=2)
    torch.testing.assert_close(model.encoder(TOKENS[2:], dropout_rng=last), dropped[2:])


def test_output_dropout_scales_the_final_states() -> None:
    plain = build().encoder(TOKENS)
    dropped = build("encoder.output_dropout=0.5").encoder(TOKENS, dropout_rng=RNG)
    is_kept = dropped != 0
    assert 0.3 < is_kept.float().mean() < 0.7
    torch.testing.assert_close(dropped[is_kept], 2 * plain[is_kept])


def test_sublayers_and_blocks_have_independent_dropout() -> None:
    model = build("encoder.feed_forward.dropout=0.5", "encoder.depth.order=sff")
    first, second = get_blocks(model.encoder)
    x = torch.ones(2, 4, 32)
    masks: list[torch.Tensor] = []
    for block_number, block in enumerate((first, second)):
        for number, name in enumerate(block.sublayers, start=1):
            if not name.startswith("feed_forward"):
                continue
            sublayer = block.sublayers[name]
            sublayer.down.register_forward_pre_hook(lambda _, args: masks.append(args[0] != 0))
            sublayer(x, None, RNG.for_block(block_number), 100 + number)
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 4
