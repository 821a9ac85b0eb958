"""An encoder for long sequences starts like its source for short ones."""

import torch

from bertwright.models import Model
from bertwright.modules.attention.mask import BidirectionalVisibility, GlobalVisibility
from bertwright.training.pretraining.pretrain import POSITION_TABLE, extended_weights
from toy_recipes import LENGTH, VOCABULARY, toy


def test_positions_are_repeated_and_global_projections_copied():
    source = Model.build(toy("roberta", f"encoder.positions.size={LENGTH}"), VOCABULARY)
    model = Model.build(toy("longformer", "encoder.positions.size=60", "seed=1"), VOCABULARY)
    weights = extended_weights(source, model)
    assert weights.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict(weights)
    table = model.get_parameter(f"encoder.{POSITION_TABLE}")
    assert torch.equal(table[2 : 2 + LENGTH], table[2 + LENGTH : 2 + 2 * LENGTH])
    assert torch.equal(table[: 2 + LENGTH], source.get_parameter(f"encoder.{POSITION_TABLE}"))
    generator = torch.Generator().manual_seed(0)
    token_ids = torch.randint(5, VOCABULARY, (2, LENGTH), generator=generator)
    states = model(token_ids, visibility=BidirectionalVisibility() | GlobalVisibility(first=4))
    torch.testing.assert_close(states, source(token_ids), atol=1e-5, rtol=1e-5)


def test_equal_lengths_are_copied_unchanged():
    source = Model.build(toy("roberta"), VOCABULARY)
    weights = extended_weights(source, Model.build(toy("roberta", "seed=1"), VOCABULARY))
    assert all(torch.equal(weights[name], p) for name, p in source.named_parameters())


def test_positions_of_a_decoder_are_repeated():
    source = Model.build(toy("mass", f"encoder.positions.size={LENGTH}"), VOCABULARY)
    model = Model.build(toy("mass", f"encoder.positions.size={2 * LENGTH}", "seed=1"), VOCABULARY)
    weights = extended_weights(source, model)
    for stack in ("encoder", "decoder"):
        table = source.get_parameter(f"{stack}.{POSITION_TABLE}")
        assert torch.equal(weights[f"{stack}.{POSITION_TABLE}"], table.tile(2, 1))
