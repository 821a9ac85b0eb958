"""All sides compute the same: tokens, masked positions, parameters."""

import numpy as np
import pytest
import torch

from benchmarks.pretraining.transformers_worker import stock_model
from benchmarks.pretraining.workload import NUM_BATCHES, SPECIAL_TOKENS, VOCAB_SIZE, Workload
from bertwright.models.costs import num_parameters_by_part

WORKLOAD = Workload("tiny", batch_tokens=256, sequence_length=32)


def test_batches_are_reproducible() -> None:
    first, second = WORKLOAD.batches(), WORKLOAD.batches()
    assert len(first) == NUM_BATCHES
    for one, other in zip(first, second, strict=True):
        assert (one.token_ids == other.token_ids).all()
        assert (one.targets["masked"].positions == other.targets["masked"].positions).all()


def test_fifteen_percent_of_the_tokens_are_masked() -> None:
    batch = Workload("tiny").batches()[0]
    assert batch.token_ids.shape == (32, 128)
    assert np.divide(*batch.masked_counts("masked")) == pytest.approx(0.15, abs=0.005)
    masked = batch.token_ids.ravel()[batch.targets["masked"].positions]
    assert np.mean(masked == SPECIAL_TOKENS.mask) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("size", ["tiny", "mini", "small"])
def test_the_stock_model_has_the_same_parameters(size: str) -> None:
    recipe = Workload(size).recipe()
    with torch.device("meta"):
        stock = stock_model(recipe, VOCAB_SIZE)
    ours = sum(num_parameters_by_part(recipe, VOCAB_SIZE).values())
    assert sum(p.numel() for p in stock.parameters()) == ours
