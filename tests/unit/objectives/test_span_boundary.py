"""Span boundary objective against its equations (Joshi et al. 2019, section 3.2)."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertwright.models.model import DeviceBatch, Model
from bertwright.objectives.model_output import ModelOutput
from bertwright.objectives.span_boundary import SpanBoundary
from bertwright.testing.toy import TOY_VOCAB_SIZE, randomise, toy_arrays, toy_sequences
from toy_recipes import published, toy


def spans(is_masked: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and last position of every run of masked tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], is_masked.astype(int), [0]))))
    return [(int(a), int(b) - 1) for a, b in edges.reshape(-1, 2)]


def test_targets_are_the_tokens_between_the_boundaries() -> None:
    recipe = toy("spanbert")
    longest = recipe.objectives["span-boundary"].longest
    batch, original = toy_arrays(recipe, 0), toy_sequences(recipe)
    masked, targets = batch.targets["masked"], batch.targets["span-boundary"]
    length = original.token_ids.shape[1]
    is_masked = np.zeros(original.token_ids.size, bool)
    is_masked[masked.positions[masked.weights > 0]] = True
    expected = {}
    for row in range(len(original.token_ids)):
        special = original.is_special[row]
        for start, stop in spans(is_masked.reshape(-1, length)[row]):
            if start == 0 or stop == length - 1 or special[start - 1] or special[stop + 1]:
                continue
            for position in range(start, min(stop + 1, start + longest)):
                at = row * length + position
                boundary = (row * length + start - 1, row * length + stop + 1)
                expected[at] = (*boundary, position - start, original.token_ids[row, position])
    scored = targets.weights > 0
    columns = [targets.extra_inputs[n] for n in ("left_positions", "right_positions")]
    columns += [targets.extra_inputs["span_offsets"], targets.labels]
    predictions = {
        int(at): tuple(int(column[n]) for column in columns)
        for n, at in enumerate(targets.positions)
        if scored[n]
    }
    assert expected
    assert predictions == {at: tuple(map(int, values)) for at, values in expected.items()}


@torch.no_grad()
@pytest.mark.parametrize("embeddings", ["{kind: tokens}", "{kind: factorised, width: 16}"])
def test_head_is_two_layers_on_boundaries_and_offset(embeddings: str) -> None:
    recipe = toy("spanbert", f"encoder.embeddings={embeddings}")
    model = Model.build(recipe, TOY_VOCAB_SIZE)
    randomise(model, 0.3)
    batch = DeviceBatch(toy_arrays(recipe, 0))
    targets, head = batch.targets["span-boundary"], model.heads["span-boundary"]
    objective = recipe.objectives["span-boundary"]
    states = model.encoder(batch.token_ids, batch.token_info)
    output = ModelOutput(batch.token_ids, states, model.embedding_table, None)
    flat = states.flatten(0, 1)
    extra = targets.extra_inputs
    offsets = head.positions.weight[extra["span_offsets"]]
    joined = [flat[extra["left_positions"]], flat[extra["right_positions"]], offsets]
    hidden = head.first_norm(F.gelu(head.first(torch.cat(joined, -1))))
    hidden = head.second_norm(F.gelu(head.second(hidden)))
    logits = hidden @ model.embedding_table.T + head.bias
    torch.testing.assert_close(objective.logits(targets, output, head), logits)
    loss = objective.compute_loss(targets, output, head)
    losses = F.cross_entropy(logits, targets.labels, reduction="none")
    assert loss.sum.item() == pytest.approx((losses * targets.weights).sum().item(), rel=1e-4)
    assert loss.count == pytest.approx(float(targets.weights.sum()))
    correct = (logits.argmax(-1) == targets.labels) * targets.weights
    assert float(loss.num_correct) == pytest.approx(float(correct.sum()))


def test_the_width_of_offsets_is_the_published_one_by_default() -> None:
    objective = published("spanbert").objectives["span-boundary"]
    assert SpanBoundary().position_width == objective.position_width


def test_cost_of_the_head_is_two_operations_for_each_weight() -> None:
    recipe = toy("spanbert")
    model = Model.build(recipe, TOY_VOCAB_SIZE)
    head, objective = model.heads["span-boundary"], recipe.objectives["span-boundary"]
    matrices = head.first.weight.numel() + head.second.weight.numel()
    matrices += model.embedding_table.numel()
    rate = recipe.objectives["masked"].targets_per_token(24)
    flops = objective.head_flops(recipe.encoder, TOY_VOCAB_SIZE, 24, recipe.objectives)
    assert flops == pytest.approx(2 * matrices * rate)
    assert objective.states_per_token(24, recipe.objectives) == pytest.approx(2 * rate)
