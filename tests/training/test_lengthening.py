"""An encoder for long rows starts as the one for short rows that it comes from."""

import torch

from bertwright.encoder.visibility import Bidirectional, Global
from bertwright.model import Model
from bertwright.training.lengthening import POSITIONS, lengthened
from recipes_at_toy_size import LENGTH, VOCABULARY, toy


def test_positions_are_repeated_and_global_projections_copied():
    found = Model.build(toy("roberta", f"encoder.positions.size={LENGTH}"), VOCABULARY)
    model = Model.build(toy("longformer", "encoder.positions.size=60", "seed=1"), VOCABULARY)
    weights = lengthened(found, model)
    assert weights.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict(weights)
    table = model.get_parameter(POSITIONS)
    assert torch.equal(table[2 : 2 + LENGTH], table[2 + LENGTH : 2 + 2 * LENGTH])
    assert torch.equal(table[: 2 + LENGTH], found.get_parameter(POSITIONS))
    pieces = torch.randint(5, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    seen = model(pieces, rule=Bidirectional() | Global(first=4))
    torch.testing.assert_close(seen, found(pieces), atol=1e-5, rtol=1e-5)


def test_what_is_as_long_is_taken_as_it_is():
    found = Model.build(toy("roberta"), VOCABULARY)
    weights = lengthened(found, Model.build(toy("roberta", "seed=1"), VOCABULARY))
    assert all(torch.equal(weights[name], own) for name, own in found.named_parameters())
