"""Language models of every direction: what is asked where, and by which half of a state."""

import numpy as np
import torch

from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.questions import both_neighbours, next_pieces, previous_pieces
from bertwright.model import Model
from recipes_at_toy_size import VOCABULARY, toy, toy_batch

ROWS = Rows(
    np.array([[5, 6, 7, 8, 9, 0]], np.int32),
    Coordinates(document=np.array([[0, 0, 0, 1, 1, -1]], np.int32)),
    np.zeros((1, 6), np.bool_),
)


def test_the_piece_before_is_asked_within_its_document():
    found = previous_pieces(ROWS)
    assert found.where.tolist() == [1, 2, 3, 4, 5]
    assert found.target.tolist() == [5, 6, 7, 8, 9]
    assert found.weight.tolist() == [1, 1, 0, 1, 0]


def test_both_ways_ask_for_both_neighbours():
    found, after, before = both_neighbours(ROWS), next_pieces(ROWS), previous_pieces(ROWS)
    assert found.beside["behind"].tolist() == [1] * 5 + [0] * 5
    assert found.target.tolist() == [*after.target, *before.target]
    assert found.where.tolist() == [*after.where, *before.where]


def test_two_language_models_are_one_loss_by_halves():
    model = Model.build(toy("elmo"), VOCABULARY).double()
    batch = toy_batch(model.recipe, 0)
    (loss,) = model.losses(batch, model.recipe.objectives_of(0)).values()
    first, second = model(batch.pieces, batch.coordinates).flatten(0, 1).chunk(2, -1)
    (asked,) = batch.questions.values()
    pieces, expected, count = batch.pieces.flatten(), 0.0, 0
    for n in asked.weight.nonzero().flatten().tolist():
        place, behind = int(asked.where[n]), bool(asked.beside["behind"][n])
        state, target = (first[place], place + 1) if behind else (second[place], place - 1)
        logits = model.output.table.weight @ state + model.output.bias
        expected -= float(torch.log_softmax(logits, 0)[pieces[target]].detach())
        count += 1
    assert loss.count == count
    assert abs(float(loss.sum.detach()) - expected) < 1e-9 * count


def test_no_half_sees_the_piece_that_it_is_asked_for():
    model = Model.build(toy("elmo"), VOCABULARY)
    batch = toy_batch(model.recipe, 0)
    entered = []

    def enter(x):
        entered.append(x.detach().requires_grad_())
        return entered[-1]

    with model.replace("embeddings.output", enter):
        states = model.encoder(batch.pieces, batch.coordinates)
    for place in (3, 11, 20):
        for half, hidden in zip(
            states.chunk(2, -1), (slice(place + 1, None), slice(0, place)), strict=True
        ):
            (gradient,) = torch.autograd.grad(half[:, place].sum(), entered[0], retain_graph=True)
            assert not gradient[:, hidden].any()
            assert gradient[:, place].abs().sum() > 0


def test_small_and_slow_states_are_mean_squares():
    model = Model.build(toy("awd-lstm"), VOCABULARY).double()
    batch = toy_batch(model.recipe, 0)
    with torch.no_grad():
        losses = model.losses(batch, model.recipe.objectives_of(0))
        states = model(batch.pieces, batch.coordinates)
    size, change = losses["activation-size"], losses["activation-change"]
    assert abs(float(size.sum / size.count - states.square().mean())) < 1e-9
    expected = (states[:, 1:] - states[:, :-1]).square().mean()
    assert abs(float(change.sum / change.count - expected)) < 1e-9
