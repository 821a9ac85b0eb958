"""Everyone computes the same: pieces, places, parameters."""

import numpy as np
import pytest
import torch

from bertwright.bench.peers import stock_model
from bertwright.bench.workload import NUM_BATCHES, SPECIALS, VOCABULARY_SIZE, Workload
from bertwright.model.counting import parameters_by_part

WORKLOAD = Workload("tiny", batch_tokens=256, length=32)


def test_batches_are_the_same_wherever_they_are_made() -> None:
    first, second = WORKLOAD.batches(), WORKLOAD.batches()
    assert len(first) == NUM_BATCHES
    for one, other in zip(first, second, strict=True):
        assert (one.pieces == other.pieces).all()
        assert (one.questions["masked"].where == other.questions["masked"].where).all()


def test_batches_hide_fifteen_percent() -> None:
    batch = Workload("tiny").batches()[0]
    assert batch.pieces.shape == (32, 128)
    assert np.divide(*batch.hidden("masked")) == pytest.approx(0.15, abs=0.005)
    hidden = batch.pieces.ravel()[batch.questions["masked"].where]
    assert np.mean(hidden == SPECIALS.mask) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("size", ["tiny", "mini", "small"])
def test_the_stock_model_has_the_same_parameters(size: str) -> None:
    recipe = Workload(size).recipe()
    with torch.device("meta"):
        stock = stock_model(recipe, VOCABULARY_SIZE)
    ours = sum(parameters_by_part(recipe, VOCABULARY_SIZE).values())
    assert sum(p.numel() for p in stock.parameters()) == ours
