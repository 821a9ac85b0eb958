"""Sampled softmax: its equation, its limit, and the full softmax in evaluation."""

import math

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.objectives.heads.sampled_lm_head import (
    SampledLMHead,
    draw_negatives,
    draws_for,
    log_uniform_probabilities,
)
from toy_recipes import VOCABULARY, shaken, toy

RNG = DropoutRng.for_step(0, 3)


def build(negatives: int) -> tuple[SampledLMHead, torch.Tensor]:
    recipe = toy("elmo", f"output.negatives={negatives}")
    model = shaken(Model.build(recipe, VOCABULARY), 0.5)
    assert isinstance(model.output, SampledLMHead)
    return model.output, model.embedding_table


def test_draws_are_log_uniform_and_have_the_expected_number_of_tokens() -> None:
    probabilities = log_uniform_probabilities(torch.arange(50), 50)
    assert float(probabilities.sum()) == pytest.approx(1.0)
    assert float(probabilities[3]) == pytest.approx(math.log(5 / 4) / math.log(51))
    token_ids, _ = draw_negatives(100_000, 50, RNG)
    counts = torch.bincount(token_ids, minlength=50) / 100_000
    torch.testing.assert_close(counts.double(), probabilities, atol=5e-3, rtol=0)
    # Of three tokens the first has half of the probability.
    few, _ = draw_negatives(100_000, 3, RNG)
    assert float((few == 0).double().mean()) == pytest.approx(0.5, abs=5e-3)
    num_draws = draws_for(200, 5_000)
    distinct = [
        int((~draw_negatives(num_draws, 5_000, DropoutRng.for_step(0, step))[1]).sum())
        for step in range(30)
    ]
    assert sum(distinct) / 30 == pytest.approx(200, rel=0.05)


def test_loss_compares_with_the_sample_only() -> None:
    head, table = build(12)
    labels, weights = torch.tensor([0, 7, 39, 7]), torch.tensor([1.0, 1.0, 0.5, 0.0])
    states = torch.randn(4, head.table.weight.shape[1])
    # The first label has the largest logit.
    states[0] = 9 * head.table.weight[0].detach()
    n = draws_for(12, VOCABULARY)
    sample = set(draw_negatives(n, VOCABULARY, RNG)[0].tolist())
    assert 3 < len(sample) < VOCABULARY

    def logit(state: torch.Tensor, token: int) -> torch.Tensor:
        p = math.log((token + 2) / (token + 1)) / math.log(VOCABULARY + 1)
        inclusion = 1 - (1 - p) ** n
        return head.table.weight[token] @ state + head.bias[token] - math.log(inclusion)

    expected, num_expected = torch.zeros(()), 0.0
    for state, label, weight in zip(states, labels.tolist(), weights, strict=True):
        logits = torch.stack([logit(state, k) for k in (label, *(sample - {label}))])
        expected = expected - weight * logits.log_softmax(0)[0]
        num_expected += float(weight) * (logits.argmax() == 0).item()
    loss, num_correct = head.loss(states, table, labels, weights, RNG)
    assert float(num_correct) == num_expected
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
    # Other tokens have no gradient.
    loss.backward()
    reached = set(head.table.weight.grad.abs().sum(1).nonzero().flatten().tolist())
    assert reached == sample | {0, 7, 39}


@pytest.mark.parametrize("rng", [None, RNG])
def test_the_full_softmax_in_evaluation_and_in_the_limit(rng: DropoutRng | None) -> None:
    head, table = build(12 if rng is None else VOCABULARY)
    states, labels = torch.randn(5, head.table.weight.shape[1]), torch.tensor([1, 2, 3, 4, 5])
    logits = head.logits(states, table)
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(head.loss(states, table, labels, None, rng)[0], expected)


def test_a_large_sample_estimates_the_full_softmax() -> None:
    head, table = build(VOCABULARY - 1)
    states, labels = torch.randn(64, head.table.weight.shape[1]), torch.arange(64) % VOCABULARY
    full = float(head.loss(states, table, labels, None)[0].detach())
    sampled = [
        float(head.loss(states, table, labels, None, DropoutRng.for_step(0, step))[0].detach())
        for step in range(20)
    ]
    assert sum(sampled) / 20 == pytest.approx(full, rel=0.05)


def test_settings_of_the_whole_softmax_are_refused() -> None:
    with pytest.raises(UserError, match="need the whole softmax: set them to 0"):
        toy("elmo", "output.smoothing=0.1")
