"""The fast cross-entropy equals its plain definition, in value and in every gradient."""

import math

import pytest
import torch
import torch.nn.functional as F

from bertwright.encoder.kernels import cross_entropy as kernel


def _tensors(questions: int, vocabulary: int, width: int, scale: float = 0.3):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(questions, width, generator=generator)
    table = torch.randn(vocabulary, width, generator=generator) * scale
    bias = torch.randn(vocabulary, generator=generator)
    target = torch.randint(0, vocabulary, (questions,), generator=generator)
    weight = (torch.rand(questions, generator=generator) > 0.3).float()
    return [t.requires_grad_() for t in (hidden, table, bias)], target, weight


@pytest.mark.parametrize("scale", [0.3, 30.0], ids=["small", "large"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("chunk_elements", [10**9, 7 * 40])
def test_value_and_gradients_equal_the_definition(
    monkeypatch, scale, weighted, biased, chunk_elements
):
    monkeypatch.setattr(kernel, "CHUNK_ELEMENTS", chunk_elements)
    (hidden, table, bias), target, weight = _tensors(21, 40, 8, scale)
    parameters = [hidden, table, bias] if biased else [hidden, table]
    used = bias if biased else None
    ones = weight if weighted else None

    loss, right = kernel.cross_entropy(hidden, table, used, target, ones)
    found = torch.autograd.grad(loss * 0.37, parameters)

    logits = F.linear(hidden, table, used)
    each = F.cross_entropy(logits, target, reduction="none")
    share = torch.ones_like(each) if ones is None else ones
    expected = torch.autograd.grad((each * share).sum() * 0.37, parameters)

    torch.testing.assert_close(loss, (each * share).sum())
    assert right == ((logits.argmax(1) == target) * share).sum()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_without_gradients_the_value_is_the_same():
    (hidden, table, bias), target, weight = _tensors(21, 40, 8)
    with_gradients, right = kernel.cross_entropy(hidden, table, bias, target, weight)
    with torch.no_grad():
        without, also_right = kernel.cross_entropy(hidden, table, bias, target, weight)
    torch.testing.assert_close(without, with_gradients.detach())
    assert right == also_right


def test_in_bfloat16_the_error_is_that_of_rounding():
    (hidden, table, bias), target, weight = _tensors(64, 300, 32)
    half = [t.detach().bfloat16().requires_grad_() for t in (hidden, table, bias)]
    exact = [t.detach().float().requires_grad_() for t in half]
    loss, _ = kernel.cross_entropy(*half, target, weight)
    reference, _ = kernel.cross_entropy(*exact, target, weight)
    assert float((loss - reference).detach().abs() / reference.detach()) < 0.01
    for one, other in zip(
        torch.autograd.grad(loss, half), torch.autograd.grad(reference, exact), strict=True
    ):
        assert float((one.float() - other).norm() / other.norm()) < 0.02


def test_large_logits_do_not_overflow():
    hidden = torch.tensor([[200.0, 0.0]])
    table = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    loss, _ = kernel.cross_entropy(hidden, table, None, torch.tensor([1]))
    assert float(loss) == pytest.approx(200.0)


def _by_formula(parameters, target, weight, z_weight, smoothing):
    """The loss and its gradients as the formula has them, row by row: the cross-entropy with a
    target that is spread, and w (log Z)^2."""
    logits = F.linear(*parameters)
    spread = torch.full_like(logits, smoothing / logits.shape[1])
    spread[torch.arange(len(target)), target] += 1 - smoothing
    asked = -(spread * logits.log_softmax(1)).sum(1)
    loss = ((asked + z_weight * torch.logsumexp(logits, 1).square()) * weight).sum()
    return loss, torch.autograd.grad(loss * 0.37, parameters)


@pytest.mark.parametrize("scale", [0.3, 30.0], ids=["small", "large"])
@pytest.mark.parametrize("added", [(1e-4, 0.0), (0.5, 0.0), (0.0, 0.1), (0.5, 0.3)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_z_loss_and_smoothing_are_those_of_the_formula(scale, added, dtype, tolerance, monkeypatch):
    monkeypatch.setattr(kernel, "CHUNK_ELEMENTS", 300)
    parameters, target, weight = _tensors(21, 40, 8, scale)
    parameters = [p.detach().to(dtype).requires_grad_() for p in parameters]
    hidden, table, bias = parameters
    loss, _ = kernel.cross_entropy(hidden, table, bias, target, weight, kernel.PLAIN, *added)
    found = torch.autograd.grad(loss * 0.37, parameters)

    exact = [p.detach().double().requires_grad_() for p in parameters]
    expected_loss, expected = _by_formula(exact, target, weight.double(), *added)
    assert float(loss.detach()) == pytest.approx(float(expected_loss.detach()), rel=tolerance)
    for one, other in zip(found, expected, strict=True):
        scaled = (one.double() - other).abs().max() / other.abs().max()
        assert float(scaled) < tolerance


def test_a_normaliser_that_cancels_the_loss_leaves_the_target_alone():
    """At log Z = -1 / (2 w) the probabilities have no gradient, which divides by nothing."""
    table = torch.full((4, 1), -1.0 - math.log(4.0)).requires_grad_()
    loss, _ = kernel.cross_entropy(torch.ones(1, 1), table, None, torch.tensor([2]), z_weight=0.5)
    (found,) = torch.autograd.grad(loss, table)
    torch.testing.assert_close(found[:, 0], torch.tensor([0.0, 0.0, -1.0, 0.0]))


def test_what_is_measured_has_neither_z_loss_nor_smoothing():
    (hidden, table, bias), target, weight = _tensors(21, 40, 8)
    with torch.no_grad():
        plain, _ = kernel.cross_entropy(hidden, table, bias, target, weight)
        added = {"z_weight": 0.5, "smoothing": 0.1}
        measured, _ = kernel.cross_entropy(hidden, table, bias, target, weight, **added)
    assert torch.equal(plain, measured)
