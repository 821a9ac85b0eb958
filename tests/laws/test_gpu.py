"""GPU results equal CPU results."""

import pytest
import torch
from torch import Tensor

from bertwright.models import Model
from bertwright.modules.attention.kernels.inputs import AttentionInputs
from bertwright.modules.attention.kernels.kernels import KERNELS, attend
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    CausalVisibility,
    SameDocumentVisibility,
    Visibility,
    WindowVisibility,
    build_attention_mask,
)
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import SYSTEMS, VOCABULARY, toy, toy_batches

RULES = [
    BidirectionalVisibility(),
    CausalVisibility(),
    SameDocumentVisibility(),
    CausalVisibility() & SameDocumentVisibility(),
    WindowVisibility(size=20),
]
LENGTH, HEADS, WIDTH = 128, 2, 64


@pytest.mark.parametrize("system", SYSTEMS)
def test_gpu_losses_and_gradients_equal_cpu(system: str, card: torch.device) -> None:
    recipe = toy(system)
    for phase in range(len(recipe.phases)):
        expected, actual = (
            _loss_and_gradient(system, phase, device_name) for device_name in ("cpu", card)
        )
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def _loss_and_gradient(
    system: str, phase: int, device: torch.device | str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the losses of a phase with dropout, and all gradients."""
    model = Model.build(toy(system), VOCABULARY).to(device)
    dropout_rng = DropoutRng.for_step(0, 0, 0, torch.device(device))
    losses: dict[str, Tensor] = {}
    for turn, batch in enumerate(toy_batches(model.recipe, phase, device)):
        for name, loss in model.losses(
            batch, model.recipe.objectives_of(phase), dropout_rng
        ).items():
            losses[f"{turn} {name}"] = loss.sum / loss.count
    torch.stack([loss for loss in losses.values() if loss.requires_grad]).sum().backward()
    gradient = {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}
    return {name: loss.detach().cpu() for name, loss in losses.items()}, gradient


def _call(
    rule: Visibility, documents: bool, device: torch.device | str, dtype: torch.dtype
) -> AttentionInputs:
    generator = torch.Generator().manual_seed(1)
    random_inputs = torch.randn(3, 2, HEADS, LENGTH, WIDTH, generator=generator).to(torch.bfloat16)
    query, key, value = (x.to(device, dtype).requires_grad_() for x in random_inputs)
    documents_by_sequence = [[0] * 50 + [1] * 78, [0] * 80 + [-1] * 48]
    document_ids = torch.tensor(documents_by_sequence, device=device) if documents else None
    positions = torch.arange(LENGTH, device=device)[None]
    mask = build_attention_mask(rule, TokenInfo(positions, document_ids=document_ids))
    return AttentionInputs(query, key, value, mask, dropout_rate=0.0, dropout_rng=None, hooks=None)


CASES = [
    pytest.param(name, rule, documents, id=f"{name} {rule.kind} {documents=}")
    for name, kernel in KERNELS.items()
    for rule in RULES
    for documents in (False, True)
    if _call(rule, documents, "cpu", torch.bfloat16).mask.layout in kernel.layouts
]
"""Kernels with the masks that they support."""


@pytest.mark.parametrize(("name", "rule", "documents"), CASES)
def test_every_kernel_equals_the_definition(
    name: str, rule: Visibility, documents: bool, card: torch.device
) -> None:
    expected = _with_gradients(_call(rule, documents, card, torch.float32), "explicit")
    actual = _with_gradients(_call(rule, documents, card, torch.bfloat16), name)
    for tensor, other in zip(actual, expected, strict=True):
        assert (tensor.float() - other).norm() <= 1e-2 * other.norm()


def _with_gradients(call: AttentionInputs, name: str) -> list[Tensor]:
    """Return the context, and the gradients of a weighted sum of it."""
    context = attend(call, name)
    weight = torch.linspace(-1, 1, context.numel(), device=context.device).view_as(context)
    inputs = (call.query, call.key, call.value)
    return [context, *torch.autograd.grad((context * weight).sum(), inputs)]
