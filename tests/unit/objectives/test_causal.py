"""Causal language models of every direction: targets, and halves of hidden states."""

import numpy as np
import torch

from bertwright.batches.targets import (
    bidirectional_targets,
    next_token_targets,
    previous_token_targets,
)
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.models import Model
from bertwright.objectives.causal import CausalLM
from toy_recipes import VOCABULARY, toy, toy_batch

BATCH = SequenceBatch(
    np.array([[5, 6, 7, 8, 9, 0]], np.int32),
    TokenInfoArrays(document_ids=np.array([[0, 0, 0, 1, 1, -1]], np.int32)),
    np.zeros((1, 6), np.bool_),
)


def test_previous_tokens_within_a_document():
    targets = previous_token_targets(BATCH)
    assert targets.positions.tolist() == [1, 2, 3, 4, 5]
    assert targets.labels.tolist() == [5, 6, 7, 8, 9]
    assert targets.weights.tolist() == [1, 1, 0, 1, 0]


def test_bidirectional_targets():
    targets, next_targets, previous_targets = (
        bidirectional_targets(BATCH),
        next_token_targets(BATCH),
        previous_token_targets(BATCH),
    )
    assert targets.extra_inputs["is_next"].tolist() == [1] * 5 + [0] * 5
    assert targets.labels.tolist() == [*next_targets.labels, *previous_targets.labels]
    assert targets.positions.tolist() == [*next_targets.positions, *previous_targets.positions]


def test_both_directions_predict_every_token_twice():
    directions = ("forward", "backward", "both")
    counts = [CausalLM(direction=d).targets_per_token(16) for d in directions]
    assert counts == [1.0, 1.0, 2.0]


def test_halves_of_states_are_two_language_models():
    model = Model.build(toy("elmo"), VOCABULARY).double()
    batch = toy_batch(model.recipe, 0)
    (loss,) = model.losses(batch, model.recipe.objectives_of(0)).values()
    first, second = model(batch.token_ids, batch.token_info).flatten(0, 1).chunk(2, -1)
    (targets,) = batch.targets.values()
    token_ids, expected, count = batch.token_ids.flatten(), 0.0, 0
    for n in targets.weights.nonzero().flatten().tolist():
        position, is_next = int(targets.positions[n]), bool(targets.extra_inputs["is_next"][n])
        state, target = (
            (first[position], position + 1) if is_next else (second[position], position - 1)
        )
        logits = model.output.table.weight @ state + model.output.bias
        expected -= float(torch.log_softmax(logits, 0)[token_ids[target]].detach())
        count += 1
    assert loss.count == count
    assert abs(float(loss.sum.detach()) - expected) < 1e-9 * count


def test_no_half_sees_its_target():
    model = Model.build(toy("elmo"), VOCABULARY)
    batch = toy_batch(model.recipe, 0)
    inputs = []

    def record_input(x):
        inputs.append(x.detach().requires_grad_())
        return inputs[-1]

    with model.replace("embeddings.output", record_input):
        states = model.encoder(batch.token_ids, batch.token_info)
    for position in (3, 11, 20):
        for half, unseen in zip(
            states.chunk(2, -1), (slice(position + 1, None), slice(0, position)), strict=True
        ):
            (gradient,) = torch.autograd.grad(half[:, position].sum(), inputs[0], retain_graph=True)
            assert not gradient[:, unseen].any()
            assert gradient[:, position].abs().sum() > 0


def test_activation_penalties_are_mean_squares():
    model = Model.build(toy("awd-lstm"), VOCABULARY).double()
    batch = toy_batch(model.recipe, 0)
    with torch.no_grad():
        losses = model.losses(batch, model.recipe.objectives_of(0))
        states = model(batch.token_ids, batch.token_info)
    size, change = losses["activation-size"], losses["activation-change"]
    assert abs(float(size.sum / size.count - states.square().mean())) < 1e-9
    expected = (states[:, 1:] - states[:, :-1]).square().mean()
    assert abs(float(change.sum / change.count - expected)) < 1e-9
