"""Activation regularisation (Merity et al. 2018, section 4.7)."""

import numpy as np
import pytest
import torch

from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.core.rng import CounterRng
from bertwright.objectives.activation_penalty import ActivationChange, ActivationSize
from bertwright.objectives.model_output import DeviceTargets, ModelOutput
from bertwright.objectives.objective import MaskingContext
from bertwright.testing.toy import toy_vocabulary

DOCUMENT_IDS = np.array([[0, 0, 0, 1, 1, -1], [0, 0, 0, 0, 0, 0]], np.int32)
BATCH = SequenceBatch(
    np.full((2, 6), 7, np.int32),
    TokenInfoArrays(document_ids=DOCUMENT_IDS),
    np.zeros((2, 6), bool),
)
STATES = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)


def loss_of(objective: ActivationSize | ActivationChange):
    context = MaskingContext(CounterRng(0, 0, np.arange(2)), toy_vocabulary())
    _, targets = objective.make_targets(BATCH, context)
    tensors = (torch.from_numpy(a) for a in (targets.positions, targets.labels, targets.weights))
    output = ModelOutput(
        torch.from_numpy(BATCH.token_ids), torch.from_numpy(STATES), torch.zeros(9, 4), None
    )
    return objective.compute_loss(
        DeviceTargets(*tensors, float(targets.weights.sum())), output, None
    )


def test_size_is_the_mean_square_of_real_states() -> None:
    loss, is_real = loss_of(ActivationSize()), DOCUMENT_IDS >= 0
    assert loss.count == is_real.sum()
    assert loss.sum.item() == pytest.approx((STATES**2).mean(-1)[is_real].sum(), rel=1e-5)


def test_change_is_the_mean_square_of_differences_within_a_document() -> None:
    loss = loss_of(ActivationChange())
    is_pair = (DOCUMENT_IDS[:, 1:] == DOCUMENT_IDS[:, :-1]) & (DOCUMENT_IDS[:, 1:] >= 0)
    squares = (np.diff(STATES, axis=1) ** 2).mean(-1)
    assert loss.count == is_pair.sum()
    assert loss.sum.item() == pytest.approx(squares[is_pair].sum(), rel=1e-5)
