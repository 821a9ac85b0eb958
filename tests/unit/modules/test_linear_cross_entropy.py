"""The fast cross-entropy equals its plain definition, in value and in every gradient."""

import math

import pytest
import torch
import torch.nn.functional as F

from bertwright.modules import linear_cross_entropy as kernel


def _tensors(num_targets: int, vocab_size: int, width: int, scale: float = 0.3):
    generator = torch.Generator().manual_seed(0)
    hidden_states = torch.randn(num_targets, width, generator=generator)
    table = torch.randn(vocab_size, width, generator=generator) * scale
    bias = torch.randn(vocab_size, generator=generator)
    target = torch.randint(0, vocab_size, (num_targets,), generator=generator)
    weight = (torch.rand(num_targets, generator=generator) > 0.3).float()
    return [t.requires_grad_() for t in (hidden_states, table, bias)], target, weight


@pytest.mark.parametrize("scale", [0.3, 30.0], ids=["small", "large"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("chunk_elements", [10**9, 7 * 40])
def test_value_and_gradients_equal_the_definition(
    monkeypatch, scale, weighted, biased, chunk_elements
):
    monkeypatch.setattr(kernel, "CHUNK_ELEMENTS", chunk_elements)
    (hidden_states, table, bias), target, weight = _tensors(21, 40, 8, scale)
    parameters = [hidden_states, table, bias] if biased else [hidden_states, table]
    used_bias = bias if biased else None
    ones = weight if weighted else None

    loss, num_correct = kernel.linear_cross_entropy(hidden_states, table, used_bias, target, ones)
    gradients = torch.autograd.grad(loss * 0.37, parameters)

    logits = F.linear(hidden_states, table, used_bias)
    losses = F.cross_entropy(logits, target, reduction="none")
    weights = torch.ones_like(losses) if ones is None else ones
    expected = torch.autograd.grad((losses * weights).sum() * 0.37, parameters)

    torch.testing.assert_close(loss, (losses * weights).sum())
    assert num_correct == ((logits.argmax(1) == target) * weights).sum()
    for actual, reference in zip(gradients, expected, strict=True):
        torch.testing.assert_close(actual, reference, atol=1e-5, rtol=1e-4)


def test_without_targets_the_loss_and_its_gradients_are_zero():
    hidden_states, table = torch.randn(0, 3, requires_grad=True), torch.randn(5, 3)
    table.requires_grad_()
    target = torch.zeros(0, dtype=torch.int64)
    loss, num_correct = kernel.linear_cross_entropy(hidden_states, table, None, target)
    assert (float(loss.detach()), float(num_correct)) == (0.0, 0.0)
    gradients = torch.autograd.grad(loss, (hidden_states, table))
    assert [float(gradient.abs().sum()) for gradient in gradients] == [0.0, 0.0]


def test_without_gradients_the_value_is_the_same():
    (hidden_states, table, bias), target, weight = _tensors(21, 40, 8)
    with_gradients, num_correct = kernel.linear_cross_entropy(
        hidden_states, table, bias, target, weight
    )
    with torch.no_grad():
        without, num_correct_without = kernel.linear_cross_entropy(
            hidden_states, table, bias, target, weight
        )
    torch.testing.assert_close(without, with_gradients.detach())
    assert num_correct == num_correct_without


def test_bfloat16_error_is_rounding_error():
    (hidden_states, table, bias), target, weight = _tensors(64, 300, 32)
    half = [t.detach().bfloat16().requires_grad_() for t in (hidden_states, table, bias)]
    exact = [t.detach().float().requires_grad_() for t in half]
    loss, _ = kernel.linear_cross_entropy(*half, target, weight)
    exact_loss, _ = kernel.linear_cross_entropy(*exact, target, weight)
    assert float((loss - exact_loss).detach().abs() / exact_loss.detach()) < 0.01
    for actual, expected in zip(
        torch.autograd.grad(loss, half), torch.autograd.grad(exact_loss, exact), strict=True
    ):
        assert float((actual.float() - expected).norm() / expected.norm()) < 0.02


def test_large_logits_do_not_overflow():
    hidden_states = torch.tensor([[200.0, 0.0]])
    table = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    loss, _ = kernel.linear_cross_entropy(hidden_states, table, None, torch.tensor([1]))
    assert float(loss) == pytest.approx(200.0)


def _reference_loss(parameters, target, weight, z_weight, smoothing):
    """Return the smoothed cross-entropy plus w (log Z)^2, row by row, and its gradients."""
    logits = F.linear(*parameters)
    spread = torch.full_like(logits, smoothing / logits.shape[1])
    spread[torch.arange(len(target)), target] += 1 - smoothing
    cross_entropy = -(spread * logits.log_softmax(1)).sum(1)
    loss = ((cross_entropy + z_weight * torch.logsumexp(logits, 1).square()) * weight).sum()
    return loss, torch.autograd.grad(loss * 0.37, parameters)


@pytest.mark.parametrize("scale", [0.3, 30.0], ids=["small", "large"])
@pytest.mark.parametrize("added", [(1e-4, 0.0), (0.5, 0.0), (0.0, 0.1), (0.5, 0.3)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_z_loss_and_smoothing_follow_the_formula(scale, added, dtype, tolerance, monkeypatch):
    monkeypatch.setattr(kernel, "CHUNK_ELEMENTS", 300)
    parameters, target, weight = _tensors(21, 40, 8, scale)
    parameters = [p.detach().to(dtype).requires_grad_() for p in parameters]
    hidden_states, table, bias = parameters
    loss, _ = kernel.linear_cross_entropy(hidden_states, table, bias, target, weight, *added)
    gradients = torch.autograd.grad(loss * 0.37, parameters)

    exact = [p.detach().double().requires_grad_() for p in parameters]
    expected_loss, expected = _reference_loss(exact, target, weight.double(), *added)
    assert float(loss.detach()) == pytest.approx(float(expected_loss.detach()), rel=tolerance)
    for actual, reference in zip(gradients, expected, strict=True):
        scaled = (actual.double() - reference).abs().max() / reference.abs().max()
        assert float(scaled) < tolerance


def test_a_zero_factor_leaves_only_the_target_gradient():
    """At log Z = -1 / (2 w) the probabilities have no gradient; nothing is divided by 0."""
    table = torch.full((4, 1), -1.0 - math.log(4.0)).requires_grad_()
    loss, _ = kernel.linear_cross_entropy(
        torch.ones(1, 1), table, None, torch.tensor([2]), z_weight=0.5
    )
    (gradients,) = torch.autograd.grad(loss, table)
    torch.testing.assert_close(gradients[:, 0], torch.tensor([0.0, 0.0, -1.0, 0.0]))


def test_evaluation_has_neither_z_loss_nor_smoothing():
    (hidden_states, table, bias), target, weight = _tensors(21, 40, 8)
    with torch.no_grad():
        plain, _ = kernel.linear_cross_entropy(hidden_states, table, bias, target, weight)
        added = {"z_weight": 0.5, "smoothing": 0.1}
        measured, _ = kernel.linear_cross_entropy(
            hidden_states, table, bias, target, weight, **added
        )
    assert torch.equal(plain, measured)
